"""The C interface of the built libinferd is still the one that programs were compiled against.

libabigail's abidiff compares it with golden/abi/libinferd.abi.xml. New functions, new numbers of an enum and
new fields at the end of a struct that begins with struct_bytes are welcome; all else breaks a program.

usage: abi_test.py LIBRARY
"""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "golden/abi"
sys.path.insert(0, str(GOLDEN))
sys.dont_write_bytecode = True
from dump_abi import dump_abi  # noqa: E402

LIBRARY = None
RENEW = """
Programs that were compiled against an earlier libinferd would break. Keep the old form beside the new one (a
new function, or a new field at the end of a struct that begins with struct_bytes). If the break is meant,
raise the library's SOVERSION and the version in client_lib/libinferd.map, then renew the dump:
  python3 tests/golden/abi/dump_abi.py BUILD/lib/libinferd.so > tests/golden/abi/libinferd.abi.xml"""


def growing_structs(corpus):
    """By name, those whose callers say in struct_bytes how much of them they know."""
    found = {}
    for struct in corpus.iter("class-decl"):
        members = struct.findall("data-member")
        if members and members[0].find("var-decl").get("name") == "struct_bytes":
            found[struct.get("name")] = struct
    return found


def without_growth(old, new):
    """The corpus `new`, less the fields that its growing structs have beyond those of `old`."""
    old_structs = growing_structs(old)
    for name, struct in growing_structs(new).items():
        if name not in old_structs:
            continue
        known = len(old_structs[name].findall("data-member"))
        added = struct.findall("data-member")[known:]
        for member in added:
            struct.remove(member)
        if added:
            struct.set("size-in-bits", old_structs[name].get("size-in-bits"))
    return new


def breaks(old_text, new_text):
    """What abidiff says of the change from one dump to the other; empty if nothing breaks."""
    old = ElementTree.fromstring(old_text)
    new = without_growth(old, ElementTree.fromstring(new_text))
    with tempfile.TemporaryDirectory(prefix="inferd-abi-") as folder:
        paths = [Path(folder, "old.xml"), Path(folder, "new.xml")]
        for path, corpus in zip(paths, (old, new)):
            ElementTree.ElementTree(corpus).write(path)
        result = subprocess.run(["abidiff", "--no-added-syms", *map(str, paths)], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, check=False)
    # Bits of the exit status: 1 error, 2 usage, 4 change, 8 incompatible change.
    if result.returncode & 3:
        raise AssertionError("abidiff failed:\n" + result.stdout)
    return result.stdout if result.returncode else ""


class Abi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stored = GOLDEN.joinpath("libinferd.abi.xml").read_text(encoding="utf-8")

    def changed(self, pattern, replacement):
        text, count = re.subn(pattern, replacement, self.stored, flags=re.DOTALL)
        self.assertGreater(count, 0, pattern)
        return text

    def test_the_built_library_has_the_stored_interface(self):
        found = breaks(self.stored, dump_abi(LIBRARY))
        self.assertEqual(found, "", "\n" + found + RENEW)

    def test_a_function_that_is_gone_is_a_break(self):
        self.assertIn("1 Removed", breaks(self.stored, self.changed("inferd_cancel'", "inferd_stop'")))

    def test_a_function_of_another_version_is_a_break(self):
        new = self.changed("(name='inferd_cancel' version='INFERD_)[0-9.]+'", r"\g<1>9.9'")
        self.assertIn("1 Removed", breaks(self.stored, new))

    def test_a_field_of_another_type_is_a_break(self):
        double = re.search("type-decl name='double'[^>]*id='([^']*)'", self.stored).group(1)
        new = self.changed("(name='cached_tokens' type-id=')[^']*", r"\g<1>" + double)
        self.assertIn("cached_tokens", breaks(self.stored, new))

    def test_a_field_that_moved_is_a_break(self):
        new = self.changed("(<data-member access='public' layout-offset-in-bits=')128('>\\s*<var-decl "
                           "name='completion_tokens')", r"\g<1>160\2")
        self.assertIn("completion_tokens", breaks(self.stored, new))

    def test_another_number_of_an_enum_is_a_break(self):
        new = self.changed("(name='INFERD_FINISH_LENGTH' value=')2'", r"\g<1>7'")
        self.assertIn("INFERD_FINISH_LENGTH", breaks(self.stored, new))

    def test_a_new_function_field_or_number_is_none(self):
        older = self.changed("    <elf-symbol name='inferd_cancel' [^\n]*\n", "")
        older = re.sub(r"    <function-decl name='inferd_cancel'.*?</function-decl>\n", "", older, flags=re.DOTALL)
        older = re.sub(r"      <enumerator name='INFERD_FINISH_CANCELLED'[^\n]*\n", "", older)
        corpus = ElementTree.fromstring(older)
        struct = growing_structs(corpus)["inferd_usage"]
        struct.remove(struct.findall("data-member")[-1])
        struct.set("size-in-bits", str(int(struct.get("size-in-bits")) - 64))
        older = ElementTree.tostring(corpus, encoding="unicode")
        self.assertEqual(breaks(older, self.stored), "")
        self.assertNotEqual(breaks(self.stored, older), "")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[-1].strip())
    for tool in ("abidw", "abidiff"):
        if shutil.which(tool) is None:
            sys.exit(tool + " is missing. Install the Debian package abigail-tools (tools/packages.txt), then "
                     "run again.")
    LIBRARY = sys.argv.pop()
    unittest.main(verbosity=2)
