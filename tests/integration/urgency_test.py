"""Classes, nice and deadlines: what a client may ask for, and what becomes of it."""

import json
import os
import signal
import unittest

import harness

NOBODY = 61001


class Urgency(harness.DaemonTest):
    @classmethod
    def setUpClass(cls):
        model = cls.enterClassContext(harness.tiny_model(
            layers=8, embedding=256, heads=4, **{"feed-forward": 1024}))
        # So slow that 3,500 tokens take longer than any test here.
        cls.daemon = harness.Daemon("--set", "daemon.access=all", "--set", "scheduler.max_sequences=1",
                                    model=model)

    def setUp(self):
        # Runs until it is told to stop.
        self.running = self.start("--max-tokens", "3500", *harness.ENDLESS)

    def tearDown(self):
        self.stop(self.running)
        super().tearDown()

    def start(self, *options):
        return self.daemon.start_ctl("run", "--json", "--ids", "1,2,3", *options)

    def stop(self, process):
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=harness.PATIENCE_S)

    def rows(self):
        return json.loads(self.daemon.ctl("ps", "--json").stdout)["sequences"]

    def wait_for_row(self, **wanted):
        def found():
            rows = [row for row in self.rows() if all(row[name] == value for name, value in wanted.items())]
            return rows[0] if rows else None
        return harness.wait_until(found, "a sequence with %s" % wanted)

    def test_class_and_nice_are_seen_and_changed(self):
        first = self.wait_for_row(priority="interactive", nice=0)
        waiting = self.start("--priority", "batch", "--nice", "5", "--max-tokens", "2")
        second = self.wait_for_row(priority="batch", nice=5)
        self.assertIn(b"batch", self.daemon.ctl("ps").stdout)
        done = self.daemon.ctl("renice", "--json", str(second["id"]), "--nice", "-3")
        self.assertEqual(json.loads(done.stdout), {"priority": "batch", "nice": -3})
        self.wait_for_row(id=second["id"], priority="batch", nice=-3)
        done = self.daemon.ctl("renice", str(first["id"]), "--priority", "idle", "--nice", "19")
        self.assertEqual((done.returncode, done.stdout), (0, b"Sequence %d is idle with nice 19.\n" % first["id"]))
        self.wait_for_row(id=first["id"], priority="idle", nice=19)
        # The daemon runs one sequence at a time here: that of the later class makes way.
        answer, _ = waiting.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(len(json.loads(answer)["ids"]), 2)
        self.assertEqual(self.daemon.ctl("renice", "999999", "--nice", "1").returncode, 1)
        for wrong in (["--nice", "20"], ["--nice", "x"], ["--priority", "high"], []):
            self.assertEqual(self.daemon.ctl("renice", str(first["id"]), *wrong).returncode, 2)

    def test_a_request_that_cannot_start_in_time_is_refused(self):
        self.wait_for_row(nice=0)
        late = self.daemon.ctl("run", "--ids", "4,5", "--deadline", "50", "--max-tokens", "2")
        self.assertEqual(late.returncode, 1)
        self.assertIn(b"deadline", late.stderr)
        self.stop(self.running)
        early = self.daemon.ctl("run", "--ids", "4,5", "--deadline", "200000", "--max-tokens", "2")
        self.assertEqual(early.returncode, 0, early.stderr)
        self.assertIn('inferd_requests_total{outcome="overdue"} 1', self.daemon.ctl("metrics").stdout.decode())

    @unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
    def test_what_needs_privilege(self):
        first = self.wait_for_row(nice=0)
        refused = self.daemon.ctl_as(NOBODY, "run", "--ids", "1", "--nice", "-1")
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"nice below 0", refused.stderr)
        refused = self.daemon.ctl_as(NOBODY, "renice", str(first["id"]), "--nice", "5")
        self.assertEqual(refused.returncode, 1, "not theirs")
        self.assertEqual(self.wait_for_row(id=first["id"])["nice"], 0)


if __name__ == "__main__":
    harness.main()
