"""README's list of packages is the one that the scripts install."""

import os
import re
import unittest

import harness


class PackageList(unittest.TestCase):
    def test_readme_lists_what_the_scripts_install(self):
        with open(os.path.join(harness.SOURCE, "tools/packages.txt")) as file:
            installed = {}
            for line in file:
                if line.strip() and not line.startswith("#"):
                    name, group, reason = line.split(None, 2)
                    self.assertIn(group, ("build", "test"), line)
                    installed[name] = reason.strip()
        with open(os.path.join(harness.SOURCE, "README.md")) as file:
            listed = dict(re.findall(r"^\| `([^`]+)` \| (.*?) \|$", file.read(), re.MULTILINE))
        self.assertGreater(len(installed), 10)
        self.assertEqual(listed, installed)


harness.main()
