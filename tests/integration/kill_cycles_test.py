"""200 clients killed at random instants leave nothing behind, and nor does a daemon that is killed itself.

A thousand by hand: INFERD_TEST_KILL_CYCLES=1000. The same instants again: INFERD_TEST_SEED.
"""

import os
import random
import select
import signal
import subprocess
import time
import unittest

import harness

CYCLES = int(os.environ.get("INFERD_TEST_KILL_CYCLES", "200"))
REQUESTS = 1000  # of one client: more than any of them lives to make
TOGETHER = 3     # clients that the killed daemon had


def start_client(daemon, chance):
    command = [harness.binary("inferd-test-churn"), daemon.socket, str(chance.getrandbits(63)), str(REQUESTS)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def kill(client):
    client.kill()
    client.communicate()


class KillCycles(unittest.TestCase):
    def setUp(self):
        seed = int(os.environ.get("INFERD_TEST_SEED", random.randrange(1 << 32)))
        print("seed", seed)
        self.chance = random.Random(seed)

    def wait_for_requests(self, client):
        """Until the client has opened its first sequence."""
        self.assertTrue(select.select([client.stdout], [], [], harness.PATIENCE_S)[0], "the client goes on")
        self.assertEqual(os.read(client.stdout.fileno(), 1), b"o")

    def kill_one(self, daemon):
        client = start_client(daemon, self.chance)
        # Half of them while they run, the others from their first instruction on: 0.1 ms to 50 ms.
        if self.chance.random() < 0.5:
            self.wait_for_requests(client)
        time.sleep(0.0001 * 2 ** self.chance.uniform(0, 9))
        kill(client)

    def footprint(self, daemon):
        daemon.wait_idle()
        harness.wait_until(lambda: daemon.status()["sessions"] == 0, "no session is left")
        return harness.Footprint(daemon)

    def assert_back(self, daemon, before):
        harness.wait_until(lambda: self.footprint(daemon) == before,
                           "descriptors, memfds and mappings are as before: " + repr(before))

    def assert_whole(self, daemon):
        pages = daemon.status()["pages"]
        self.assertEqual(pages["free"] + pages["cached"], pages["total"])
        verified = daemon.ctl("verify")
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)

    def test_killed_clients_leave_nothing_behind(self):
        with harness.tiny_model() as model, harness.Daemon("--set", "memory.pool=4MiB", model=model) as daemon:
            for _ in range(10):
                self.kill_one(daemon)
            before, files = self.footprint(daemon), sorted(os.listdir(daemon.runtime))
            for cycle in range(CYCLES):
                self.kill_one(daemon)
                if cycle % 20 == 0:
                    self.assert_back(daemon, before)
            self.assert_back(daemon, before)
            self.assertEqual(sorted(os.listdir(daemon.runtime)), files)
            self.assert_whole(daemon)

    def test_a_killed_daemon_starts_again_on_what_it_left(self):
        with harness.tiny_model() as model, harness.Daemon("--set", "memory.pool=4MiB", model=model) as daemon:
            for _ in range(5):
                clients = [start_client(daemon, self.chance) for _ in range(TOGETHER)]
                for client in clients:
                    self.wait_for_requests(client)
                time.sleep(0.0001 * 2 ** self.chance.uniform(0, 9))
                daemon.end(signal.SIGKILL)
                self.assertIn("inferd.sock", os.listdir(daemon.runtime))
                daemon.start()
                # Those of the daemon before it notice, or are killed: neither is this daemon's affair.
                for client in clients:
                    kill(client)
                answer = daemon.answer("--raw", "--max-tokens", "3", "--", "1 2 3")
                self.assertEqual(answer["usage"]["completion_tokens"], 3)
                self.footprint(daemon)
                self.assert_whole(daemon)


harness.main()
