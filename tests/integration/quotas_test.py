"""Quotas: who is over one hears which, and nobody else notices."""

import json
import os
import signal
import unittest

import harness

ANN, BOB = 61001, 61002


@unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
class Quotas(harness.DaemonTest):
    @classmethod
    def setUpClass(cls):
        model = cls.enterClassContext(harness.tiny_model(layers=16, embedding=256, heads=4))
        cls.config = os.path.join(os.path.dirname(model), "inferd.toml")
        cls.write()
        cls.daemon = harness.Daemon("--config", cls.config, model=model)

    @classmethod
    def write(cls, **limits):
        with open(cls.config, "w") as file:
            file.write('[daemon]\naccess = "all"\n[limits]\n')
            file.writelines("%s = %s\n" % limit for limit in limits.items())

    def limit(self, **limits):
        self.write(**limits)
        done = self.daemon.ctl("reload")
        self.assertEqual(done.returncode, 0, done.stderr)

    def ask(self, uid, tokens, most):
        ids = ",".join(str(3 + i % 300) for i in range(tokens))
        return self.daemon.ctl_as(uid, "run", "--no-store", "--ids", ids, "--max-tokens", str(most), "--json")

    def refused(self, done, part):
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(part, done.stderr.decode())

    def served(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["ids"]

    def test_sequences_and_pages(self):
        self.limit(user_sequences=1)
        # One of root's own that runs until it is told to stop.
        running = self.daemon.start_ctl("run", "--ids", "1,2,3", "--max-tokens", "4000", "--json",
                                        *harness.ENDLESS)
        harness.wait_until(lambda: self.daemon.status()["sequences"] == 1, "it runs")
        self.refused(self.daemon.ctl("run", "--ids", "1", "--max-tokens", "1"), "[limits] user_sequences allows 1")
        self.served(self.ask(ANN, 10, 2))
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=harness.PATIENCE_S)
        self.limit(user_pages=4)
        self.served(self.ask(ANN, 10, 54))
        self.refused(self.ask(ANN, 10, 55), "[limits] user_pages allows 4")

    def test_tokens_a_second(self):
        self.limit(user_tokens_per_s=1)
        self.served(self.ask(ANN, 400, 2))
        self.refused(self.ask(ANN, 10, 2), "[limits] user_tokens_per_s allows 1: try again in ")
        self.served(self.ask(BOB, 10, 2))
        self.limit()
        self.served(self.ask(ANN, 10, 2))


if __name__ == "__main__":
    harness.main()
