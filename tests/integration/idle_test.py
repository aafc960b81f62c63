"""With nothing to do the daemon sleeps, however many clients are connected: no thread of it ever runs."""

import contextlib
import os
import subprocess
import time
import unittest

import harness

WINDOW_S = 2
# Long enough for what follows the last request to be over: idle pages go back to the system after two seconds.
SETTLE_S = 2.5


class Idle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = cls.enterClassContext(harness.Daemon(model=cls.enterClassContext(harness.tiny_model())))

    @contextlib.contextmanager
    def clients(self, count):
        """So many connections, each of which has had an answer."""
        command = [harness.binary("inferd-test-hold"), self.daemon.socket, str(count)]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self.assertEqual(holder.stdout.readline(), b"ready\n")
            self.assertEqual(self.daemon.status()["sessions"], count)
            yield
        finally:
            holder.stdin.close()
            holder.stdout.close()
            self.assertEqual(holder.wait(harness.PATIENCE_S), 0)

    def switches(self):
        """How often the daemon's threads have left a processor so far: each time that one ran counts."""
        total = 0
        folder = "/proc/%d/task" % self.daemon.process.pid
        for thread in os.listdir(folder):
            with open(os.path.join(folder, thread, "status")) as file:
                total += sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
        return total

    def test_it_sleeps(self):
        for count in (1, 50, 200):
            with self.subTest(clients=count), self.clients(count):
                time.sleep(SETTLE_S)
                before = self.switches()
                self.assertGreater(before, 0)
                time.sleep(WINDOW_S)
                self.assertEqual(self.switches() - before, 0)


harness.main()
