"""Resident memory: the weights once, the pages in use, and little else."""

import signal
import subprocess
import unittest

import harness

SEQUENCES = 32
TOKENS = 512
SPARE_BYTES = 64 << 20

# Many keys and values, and little else to compute.
MUCH_KV = {"layers": 4, "embedding": 64, "heads": 4, "kv-heads": 4, "head-dim": 128, "feed-forward": 64}
KV_BYTES = 4 * 4 * 128 * 2 * 2  # of one token: layers, heads, values of K and of V, two bytes each


class Memory(unittest.TestCase):
    def resident_bytes(self, daemon):
        """Of all mappings, the shared ones (weights, pages, rings) included in full."""
        with open("/proc/%d/smaps_rollup" % daemon.process.pid) as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("Rss:"))

    def peak_bytes(self, daemon):
        with open("/proc/%d/status" % daemon.process.pid) as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:"))

    def report(self, what, measured, limit):
        print("%s: %.1f MiB of at most %.1f MiB" % (what, measured / 2**20, limit / 2**20))
        self.assertLessEqual(measured, limit, what)

    def allowed_bytes(self, daemon):
        return 1.1 * daemon.call("List")["parameters"]["models"][0]["file_bytes"] + SPARE_BYTES

    def test_the_weights_are_there_once_also_while_they_are_loaded(self):
        with harness.Daemon() as daemon:
            self.report("peak of loading", self.peak_bytes(daemon), self.allowed_bytes(daemon))
            self.report("loaded", self.resident_bytes(daemon), self.allowed_bytes(daemon))
            daemon.answer("--raw", "--max-tokens", "3", "--", "Once upon a time")
            self.report("answered", self.resident_bytes(daemon), self.allowed_bytes(daemon) + 16 * KV_BYTES)

    def test_sequences_cost_their_pages_and_give_them_back(self):
        with harness.tiny_model(**MUCH_KV) as model, \
                harness.Daemon("--set", "memory.cache_idle=1s", model=model) as daemon:
            page = daemon.call("List")["parameters"]["models"][0]["page_bytes"]
            self.assertEqual(page, 16 * KV_BYTES)
            clients = [self.start(daemon, i) for i in range(SEQUENCES)]
            harness.wait_until(lambda: self.all_answer(daemon), "%d sequences of %d tokens" % (SEQUENCES, TOKENS))
            for client in clients:
                # Its sequence pauses once its ring is full; until then it has more pages, not fewer.
                client.send_signal(signal.SIGSTOP)
            pages = daemon.status()["pages"]
            used = pages["live"] + pages["cached"]
            self.assertGreaterEqual(used, SEQUENCES * TOKENS / 16)
            self.report("%d pages" % used, self.resident_bytes(daemon), self.allowed_bytes(daemon) + used * page)
            for client in clients:
                client.kill()
                client.communicate()
            daemon.wait_idle()
            harness.wait_until(lambda: daemon.status()["pages"]["cached"] == 0, "the cache let go of them")
            harness.wait_until(lambda: self.resident_bytes(daemon) <= self.allowed_bytes(daemon), "pages were given back")

    def start(self, daemon, seed):
        ids = ",".join(str((seed * 97 + i * 31) % 384) for i in range(TOKENS))
        return daemon.start_ctl("run", "--ids", ids, "--logit-bias", "0=-inf", "--logit-bias", "2=-inf",
                                stdout=subprocess.DEVNULL)

    def all_answer(self, daemon):
        rows = daemon.call("Ps")["parameters"]["sequences"]
        return len(rows) == SEQUENCES and all(row["generated_tokens"] > 0 for row in rows)


harness.main()
