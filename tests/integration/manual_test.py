"""The manual pages and --help tell the same; every path that the documents name exists."""

import glob
import os
import re
import subprocess
import unittest

import harness


def help_of(program, *words):
    done = subprocess.run([harness.binary(program), *words], capture_output=True, text=True, timeout=harness.PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def options_in_help(text):
    """Lines such as "  --top-k N   draw among ..." as {"--top-k N"}; "--help, -h" counts as "--help"."""
    return {re.sub(", -h$", "", found) for found in re.findall(r"^  (--.*?)(?:  +|$)", text, re.MULTILINE)}


def plain(line):
    """The text of a line of a manual page's source that begins with a font macro."""
    macro, _, line = line.partition(" ")
    line = re.sub(r"\\f.", "", line).replace("\\(dq", "'").replace("\\-", "-")
    if macro in (".B", ".I"):
        return line
    pieces = re.findall(r'"[^"]*"|[^ "]+', line)  # .BI and the like: arguments in alternating fonts
    return "".join(piece.strip('"') for piece in pieces)


class Manual:
    """A manual page as a list of (section, subsection, depth of .RS, tag of a .TP)."""

    def __init__(self, name):
        with open(os.path.join(harness.SOURCE, "docs/man", name)) as file:
            self.source = file.read()
        self.tags = []
        section = subsection = ""
        depth = 0
        tag_follows = False
        for line in self.source.splitlines():
            if tag_follows:
                self.tags.append((section, subsection, depth, plain(line)))
            tag_follows = line == ".TP"
            if line.startswith(".SH "):
                section, subsection = line[4:], ""
            elif line.startswith(".SS "):
                subsection = line[4:].replace("\\-", "-")
            depth += {".RS": 1, ".RE": -1}.get(line, 0)

    def options(self, section, subsection=""):
        return {re.sub(", -h$", "", tag) for s, sub, _, tag in self.tags
                if (s, sub) == (section, subsection) and tag.startswith("--")}


class Manuals(unittest.TestCase):
    def test_inferd(self):
        self.assertEqual(Manual("inferd.8").options("OPTIONS"), options_in_help(help_of("inferd", "--help")))

    def test_inferctl(self):
        manual = Manual("inferctl.1")
        common = manual.options("OPTIONS OF EVERY COMMAND")
        self.assertIn("--help", common)
        own, shared, command = {}, set(), ""
        for section, subsection, depth, tag in manual.tags:
            if tag.startswith("inferctl "):
                command = tag.split()[1]
                own[command] = {"--json"} if section == "ADMINISTRATION" else set()
            elif tag.startswith("--") and depth > 0:
                own[command].add(tag)
            elif tag.startswith("--") and subsection == "Options of run and chat":
                shared.add(tag)
        overview = help_of("inferctl", "--help")
        self.assertEqual(list(own), re.findall(r"^  ([a-z-]+)  ", overview, re.MULTILINE))
        for command, options in own.items():
            with self.subTest(command=command):
                expected = common | options | (shared if command in ("run", "chat") else set())
                self.assertEqual(options_in_help(help_of("inferctl", command, "--help")), expected)

    def test_inferd_bench(self):
        manual = Manual("inferd-bench.1")
        commands = re.findall(r"^  ([a-z-]+)  ", help_of("inferd-bench", "--help"), re.MULTILINE)
        self.assertEqual(re.findall(r"^\.SS (.*)$", manual.source.replace("\\-", "-"), re.MULTILINE), commands)
        for command in commands:
            with self.subTest(command=command):
                self.assertEqual(options_in_help(help_of("inferd-bench", command, "--help")),
                                 manual.options("COMMANDS", command))

    def test_exit_codes_are_those_of_the_source(self):
        manual = Manual("inferd.8")
        described = {tag for section, _, _, tag in manual.tags if section == "EXIT STATUS"}
        with open(os.path.join(harness.SOURCE, "daemon/exit_codes.h")) as file:
            self.assertEqual(described, set(re.findall(r"  k\w+ = (\d+),", file.read())))


class Documents(unittest.TestCase):
    def test_every_path_that_a_document_names_exists(self):
        """`docs/x.md` is looked for from the root, `inferd/inferd.h` among the installed headers, and
        `step_loop.cpp` and `kernels_*.cpp` anywhere."""
        for name in ("README.md", "docs/ARCHITECTURE.md"):
            with open(os.path.join(harness.SOURCE, name)) as file:
                words = re.findall(r"`([^`\s]+)`", file.read())
            paths = [w for w in words if re.fullmatch(r"[\w*./-]*(/|\.(cpp|h|hpp|c|py|sh|md|txt))", w)]
            self.assertGreater(len(paths), 3)
            for path in paths:
                if path.startswith(("build/", "/")):
                    continue
                with self.subTest(document=name, path=path):
                    found = [f for folder in ("", "client_lib/include")
                             for f in glob.glob(os.path.join(harness.SOURCE, folder, path))]
                    if "/" not in path:
                        found += [f for f in glob.glob(os.path.join(harness.SOURCE, "*/**", path), recursive=True)
                                  if not f.startswith(os.path.join(harness.SOURCE, "build/"))]
                    self.assertTrue(found)


harness.main()
