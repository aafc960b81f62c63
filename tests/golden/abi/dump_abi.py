"""Makes libinferd.abi.xml: libinferd's C interface as libabigail's abidw reads it from a built library.

usage: dump_abi.py BUILD/lib/libinferd.so > libinferd.abi.xml

The library needs its debug information (the presets release and dev have it). Functions with the version
in which they appeared, and the types of the public headers; nothing else.
"""

import re
import subprocess
import sys
from pathlib import Path

HEADERS = Path(__file__).resolve().parents[3] / "client_lib/include"


def dump_abi(library):
    command = ["abidw", "--headers-dir", str(HEADERS), "--drop-private-types", "--exported-interfaces-only",
               "--type-id-style", "hash", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs",
               "--no-elf-needed", "--no-architecture", str(library)]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    # Where it was compiled says nothing about it.
    text = re.sub(r"(<abi-instr [^>]*path=')[^']*/", r"\1", text)
    if "<function-decl name='inferd_connect'" not in text or "<class-decl name='inferd_usage' size" not in text:
        sys.exit("%s has no debug information, or is no libinferd." % library)
    return text


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    sys.stdout.write(dump_abi(sys.argv[1]))
