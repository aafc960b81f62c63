#!/usr/bin/env python3
"""Doxygen's input filter: prints a public header with its plain comments as doxygen's.

A comment before a declaration, or behind it on its line, documents it; the first one documents the file; a comment
that begins with dashes is a heading between declarations. What is a comment inside of a function stays one.

usage: comments.py HEADER
"""

import re
import sys


def escaped(text):
    """What doxygen would take for commands, tags or links, as text."""
    text = re.sub(r"([@\\<>%#])", r"\\\1", text)
    return re.sub(r"(\$\w+)", r"`\1`", text)


def converted(line, in_body):
    behind = re.match(r"^(.*[;,{]|#define \w+ \S+|  \w+(?: = \w+)?)(\s+)/\* (.*) \*/$", line)
    if behind:
        return "%s%s/**< %s */" % (behind[1], behind[2], escaped(behind[3]))
    behind = re.match(r"^(\s*[^/\s].*[;,])(\s+)// (.*)$", line)
    if behind and not in_body:
        return "%s%s///< %s" % (behind[1], behind[2], escaped(behind[3]))
    before = re.match(r"^(\s*)// ?(.*)$", line)
    if before and not in_body:
        return "%s/// %s" % (before[1], escaped(before[2]))
    return line


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[-1].strip())
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = file.read().split("\n")
    in_block = False  # of a C comment over several lines
    first = True
    depth = 0  # of braces that belong to functions
    for line in lines:
        if in_block:
            in_block = "*/" not in line
            head, end, _ = line.partition("*/")
            print(re.sub(r"^(\s*\*?)(.*)$", lambda m: m[1] + escaped(m[2]), head) + end)
            continue
        stripped = line.lstrip()
        if depth == 0 and stripped.startswith("/*") and not stripped.startswith("/* ---"):
            in_block = "*/" not in line
            text = stripped[2:].removesuffix("*/")
            print("/**%s%s%s" % (" @file\n *" if first else "", escaped(text), "" if in_block else "*/"))
            first = False
            continue
        if first and stripped.startswith("//"):
            print("/// @file")
            first = False
        if stripped.startswith("/* ---"):
            continue
        print(converted(line, depth > 0))


main()
