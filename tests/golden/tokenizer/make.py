"""Writes ids.txt: for each vocabulary that llama.cpp ships, a 32-bit FNV-1a of its ids of every text in corpus.txt and
ill_formed.txt, or "refused". Usage: make.py LLAMA_SOURCE (built in LLAMA_SOURCE/build). Both files hold one text a
line, in hexadecimal; ill_formed.py writes the second."""

import glob
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def fnv(line):
    value = 0x811C9DC5
    for byte in line:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:08x}"


def main(source):
    libraries = os.path.join(source, "build/bin")
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(HERE, "ids.txt"), "w") as out:
        program = os.path.join(folder, "reference")
        subprocess.run(["g++", "-std=c++17", os.path.join(HERE, "reference.cpp"), "-o", program,
                        "-I" + os.path.join(source, "include"), "-I" + os.path.join(source, "ggml/include"),
                        "-L" + libraries, "-lllama", "-lggml", "-lggml-base", "-Wl,-rpath," + libraries], check=True)
        for path in sorted(glob.glob(os.path.join(source, "models/ggml-vocab-*.gguf"))):
            if "bert" in path:
                continue  # neither byte-level nor SentencePiece BPE
            out.write("# " + os.path.basename(path) + "\n")
            for corpus in ("corpus.txt", "ill_formed.txt"):
                done = subprocess.run([program, path, os.path.join(HERE, corpus)], check=True, capture_output=True)
                for line in done.stdout.split(b"\n")[:-1]:
                    out.write(("refused" if line == b"refused" else fnv(line)) + "\n")


main(sys.argv[1])
