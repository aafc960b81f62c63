"""A client that is stopped (SIGSTOP, a debugger) only pauses its own session, and loses it after a while."""

import json
import signal
import unittest

import harness

# With one sequence a session the completion ring has 128 slots: it is full of unread tokens at once.
OPTIONS = ("--set", "limits.sequences_per_session=1")
LONG = ["--ids", "5,6,7", "--max-tokens", "600", "--logit-bias", "0=-inf", "--logit-bias", "1=-inf",
        "--logit-bias", "2=-inf"]


class StoppedClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # A step takes about a millisecond: there is time to stop a client in the middle of its answer.
        cls.model = cls.enterClassContext(harness.tiny_model(layers=6, embedding=256, **{"feed-forward": 1024}))

    def start_stopped(self, daemon):
        """A client that is stopped while it is answered, once its session is paused. Returns it and its answer's id."""
        while True:
            client = daemon.start_ctl("run", "--json", *LONG)
            self.addCleanup(client.kill)
            harness.wait_until(lambda: self.sequences(daemon), "it runs")
            client.send_signal(signal.SIGSTOP)
            paused = harness.wait_until(lambda: self.settled(daemon), "it is paused, or had ended")[0]
            if paused is not None:
                return client, paused
            # It was all but done when it was stopped.
            client.kill()
            client.communicate()

    def settled(self, daemon):
        """The id of a paused sequence, or None if there is no sequence, as a list of one; else nothing."""
        rows = self.sequences(daemon)
        paused = [row["id"] for row in rows if row["state"] == "paused"]
        return paused or ([] if rows else [None])

    def sequences(self, daemon):
        return daemon.call("Ps")["parameters"]["sequences"]

    def test_it_is_paused_alone_and_goes_on_where_it_was(self):
        with harness.Daemon(*OPTIONS, model=self.model) as daemon:
            alone = daemon.answer(*LONG)
            self.assertEqual(len(alone["ids"]), 600)
            client, number = self.start_stopped(daemon)
            # The others are served from end to end meanwhile.
            for _ in range(3):
                self.assertEqual(daemon.answer(*LONG)["ids"], alone["ids"])
            self.assertEqual([(row["id"], row["state"]) for row in self.sequences(daemon)], [(number, "paused")])
            client.send_signal(signal.SIGCONT)
            out, complaint = client.communicate(timeout=harness.PATIENCE_S)
            self.assertEqual(client.returncode, 0, complaint)
            self.assertEqual(json.loads(out)["ids"], alone["ids"])
            daemon.wait_idle()

    def test_after_the_deadline_its_session_ends_and_the_last_word_says_why(self):
        with harness.Daemon(*OPTIONS, "--set", "limits.stall_timeout=\"300 ms\"", model=self.model) as daemon:
            client, _ = self.start_stopped(daemon)
            # It holds nothing any more, although it has not moved.
            daemon.wait_idle()
            harness.wait_until(lambda: daemon.status()["sessions"] == 0, "its session has ended")
            self.assertEqual(len(daemon.answer(*LONG)["ids"]), 600)
            client.send_signal(signal.SIGCONT)
            _, complaint = client.communicate(timeout=harness.PATIENCE_S)
            self.assertNotEqual(client.returncode, 0)
            self.assertIn(b"did not read its answers", complaint)
            self.assertIn(b"[limits] stall_timeout", complaint)


harness.main()
