"""Searches every order of steps of the rings' sleep protocol (ring.pml) with SPIN.

The protocol as it is has no fault, and every part of it is needed: without any one of them SPIN finds one.
"""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

MODEL = Path(__file__).with_name("ring.pml")
PATIENCE_S = 300  # only there so that a fault ends the test


class Search:
    """What the search of the model found, with these -D defined."""

    def __init__(self, *defines):
        optimize = "-O1" if not defines else "-O0"  # only the whole protocol takes longer than its compilation
        with tempfile.TemporaryDirectory(prefix="inferd-model-") as folder:
            def run(*command):
                result = subprocess.run(command, cwd=folder, timeout=PATIENCE_S, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, check=False)
                if result.returncode != 0:
                    raise AssertionError("%s failed:\n%s" % (" ".join(command), result.stdout))
                return result.stdout

            run("spin", *["-D" + define for define in defines], "-a", str(MODEL))
            run("cc", optimize, "-DSAFETY", "-o", "pan", "pan.c")
            self.report = run("./pan", "-m100000")
        if "max search depth too small" in self.report or "out of memory" in self.report:
            raise AssertionError("the search was cut short:\n" + self.report)
        self.errors = int(re.search(r"errors: (\d+)", self.report).group(1))
        self.states = int(re.search(r"(\d+) states, stored", self.report).group(1))
        # States of each process that no order of steps came to: a part of the model that says nothing.
        self.unreached = {name: int(count) for name, count in
                          re.findall(r"unreached in proctype (\w+)\n(?:.*\n)*?\t\((\d+) of", self.report)}


class RingModel(unittest.TestCase):
    def assert_holds(self, *defines, processes, states_min):
        found = Search(*defines)
        self.assertEqual(found.errors, 0, found.report)
        self.assertGreater(found.states, states_min, found.report)
        for process in processes:
            self.assertEqual(found.unreached[process], 0, found.report)

    def assert_fails(self, *defines, fault="invalid end state"):
        found = Search(*defines)
        self.assertGreater(found.errors, 0, found.report)
        self.assertIn(fault, found.report)

    def test_no_wake_up_is_lost(self):
        self.assert_holds(processes=("writer", "reader"), states_min=100000)

    def test_no_wake_up_is_lost_by_an_event_loop_that_never_says_that_it_is_awake(self):
        self.assert_holds("EVENT_LOOP", processes=("writer", "reader"), states_min=100000)

    def test_a_reader_that_never_empties_the_bell_does_not_stop_the_writer(self):
        self.assert_holds("HOSTILE", processes=("writer", "hostile_reader"), states_min=1000)
        self.assert_fails("HOSTILE", "BLOCKING_BELL")

    def test_without_its_store_load_ordering_a_wake_up_is_lost(self):
        self.assert_fails("NO_ORDER")
        self.assert_fails("NO_WRITER_ORDER")
        self.assert_fails("NO_READER_ORDER")
        self.assert_fails("NO_ORDER", "EVENT_LOOP")

    def test_without_any_other_of_its_steps_it_fails_too(self):
        self.assert_fails("NO_RECHECK")
        self.assert_fails("OLD_VALUE")
        self.assert_fails("LATE_CLEAR")
        self.assert_fails("EARLY_HEAD", fault="assertion violated")


if __name__ == "__main__":
    if shutil.which("spin") is None:
        raise SystemExit("SPIN is missing. Install the Debian package spin (tools/packages.txt), then run again.")
    unittest.main(verbosity=2)
