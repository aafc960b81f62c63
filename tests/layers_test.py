"""Who may include whom: reads every #include and fails on an arrow that the design does not draw.

Also fails on a file that no folder's rule covers, so that a new folder has to state its rule here.
"""

import os
import re
import sys
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Folder: what it may include, as folders or single headers. Its own files are always allowed.
ALLOWED = {
    "base": [],
    "memory": ["base"],
    "scheduler": ["base", "memory"],
    "formats": ["base"],
    "text": ["base"],
    "engine": ["base", "formats", "memory", "scheduler/batch_plan.h"],
    "ipc": ["base"],
    "client_lib": ["base", "ipc", "text"],
    "daemon": ["base", "memory", "scheduler", "formats", "text", "engine", "ipc"],
    "tools": ["client_lib", "base", "text", "formats"],
    "bench": ["client_lib", "base", "memory", "scheduler", "formats", "text", "engine", "ipc"],
}
# What a program outside of this source tree may include, and what our own examples show.
PUBLIC = "client_lib/include"


def sources(folder):
    for root, _, names in os.walk(os.path.join(SOURCE, folder)):
        for name in names:
            if name.endswith((".h", ".hpp", ".cpp", ".cu", ".cuh", ".c")):
                yield os.path.relpath(os.path.join(root, name), SOURCE)


def includes(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            found = re.match(r'\s*#\s*include\s*[<"]([^">]+)[">]', line)
            if found:
                yield number, found.group(1)


class Layers(unittest.TestCase):
    def test_every_include_follows_an_arrow_of_the_design(self):
        wrong, arrows = [], 0
        for folder, allowed in ALLOWED.items():
            for path in sources(folder):
                for number, header in includes(path):
                    target = header.split("/")[0]
                    # <memory> without a slash is the standard library's.
                    if "/" not in header or target not in ALLOWED or target == folder:
                        continue
                    arrows += 1
                    if target not in allowed and header not in allowed:
                        wrong.append("%s:%d includes %s" % (path, number, header))
        self.assertEqual(wrong, [])
        self.assertGreater(arrows, 100, "the includes were not found")

    def test_every_folder_with_code_has_a_rule(self):
        for name in os.listdir(SOURCE):
            if name in ALLOWED or name in ("tests", "build") or name.startswith("."):
                continue
            if os.path.isdir(os.path.join(SOURCE, name)):
                self.assertEqual(list(sources(name)), [], name + "/ has code and no rule in layers_test.py")

    def test_public_headers_and_examples_stand_alone(self):
        for path in list(sources(PUBLIC)) + list(sources("client_lib/examples")):
            for number, header in includes(path):
                if "/" in header:
                    self.assertNotIn(header.split("/")[0], ALLOWED, "%s:%d includes %s" % (path, number, header))

    def test_no_device_ifdef_in_headers(self):
        for folder in ALLOWED:
            for path in sources(folder):
                if path.endswith((".h", ".hpp")):
                    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
                        self.assertNotRegex(file.read(), r"#\s*if.*(__CUDACC__|__CUDA_ARCH__|__HIP)", path)


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
