"""Writes the wheel: the package and libinferd in one zip archive, with the lists that PEP 427 asks for.

    make_wheel.py --version 0.1.0 --library libinferd.so.0 --output FOLDER [--strip PROGRAM]

Needs Python's standard library only, and no network. Equal inputs give equal bytes.
"""

import argparse
import base64
import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
EARLIEST = (1980, 1, 1, 0, 0, 0)  # that a zip archive can say

METADATA = """\
Metadata-Version: 2.1
Name: inferd
Version: {version}
Summary: Language-model inference by the inferd daemon, from Python
License: Apache-2.0
Requires-Python: >=3.11
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{readme}"""

# Not "purelib": it has machine code in it. Any Python 3, as ctypes needs nothing compiled for one of them.
WHEEL = """\
Wheel-Version: 1.0
Generator: inferd make_wheel.py
Root-Is-Purelib: false
Tag: {tag}
"""


def read(path):
    with open(path, "rb") as file:
        return file.read()


def stripped(library, strip):
    """The library's bytes without debugging symbols, which are many times as large as the rest."""
    if not strip:
        return read(library)
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(library, folder)
        subprocess.run([strip, "--strip-unneeded", copy], check=True)
        return read(copy)


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return "%s,sha256=%s,%d\n" % (name, digest, len(data))


def contents(arguments, tag):
    """Name in the archive: bytes."""
    package = os.path.join(HERE, "inferd")
    files = {"inferd/" + name: read(os.path.join(package, name))
             for name in sorted(os.listdir(package)) if name.endswith((".py", ".typed"))}
    files["inferd/" + os.path.basename(arguments.library)] = stripped(arguments.library, arguments.strip)
    info = "inferd-%s.dist-info/" % arguments.version
    readme = read(os.path.join(HERE, "README.md")).decode()
    files[info + "METADATA"] = METADATA.format(version=arguments.version, readme=readme).encode()
    files[info + "WHEEL"] = WHEEL.format(tag=tag).encode()
    record = "".join(record_line(name, data) for name, data in files.items())
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode()
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--version", required=True)
    parser.add_argument("--library", required=True, help="the shared library, by the name that programs load")
    parser.add_argument("--output", required=True, help="folder to write the wheel to")
    parser.add_argument("--strip", help="the program that removes debugging symbols")
    arguments = parser.parse_args()
    tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    os.makedirs(arguments.output, exist_ok=True)
    path = os.path.join(arguments.output, "inferd-%s-%s.whl" % (arguments.version, tag))
    # Under another name until it is whole, and none of an earlier version is left beside it.
    unfinished = path + ".part"
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents(arguments, tag).items():
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    for name in os.listdir(arguments.output):
        if name.endswith(".whl"):
            os.remove(os.path.join(arguments.output, name))
    os.rename(unfinished, path)
    print(path)


if __name__ == "__main__":
    main()
