"""Cached pages on disk: they spare work within a run and after a restart, change no answer, and nothing that
befalls the file hurts anybody."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

import harness

# The page of the sample model takes 360 KiB, so this is room for 22; a prompt takes about 15.
SMALL_POOL = ("--set", "memory.pool=8 MiB")
PROMPTS = ["The history of %s, told from its beginning: " % word +
           " ".join("%s %d" % (word, i) for i in range(60))
           for word in ("rivers", "bridges", "lamps")]


class Disk(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="inferd-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.pages = os.path.join(self.folder, "pages")
        self.index = os.path.join(self.folder, "index")

    def start(self, *options, disk="100 MiB", **others):
        return harness.Daemon(*SMALL_POOL, "--set", "memory.disk=" + disk, "--set", "memory.disk_path=" + self.folder,
                              *options, **others)

    def ask(self, daemon, prompt, *options):
        return daemon.answer("--raw", "--logprobs", "3", "--max-tokens", "12", *options, "--", prompt)

    def expect_same(self, expected, answers):
        for one, other in zip(expected, answers):
            self.assertEqual((one["ids"], one["logprobs"]), (other["ids"], other["logprobs"]))

    def stop(self, daemon):
        """Ends it in order, with its log still there."""
        self.assertEqual(daemon.end(), 0, daemon.log())

    def test_what_the_pool_has_no_room_for_is_found_again_also_after_a_restart(self):
        with harness.Daemon() as daemon:
            expected = [self.ask(daemon, prompt) for prompt in PROMPTS]
        with self.start() as daemon:
            self.expect_same(expected, [self.ask(daemon, prompt) for prompt in PROMPTS])
            again = [self.ask(daemon, prompt) for prompt in PROMPTS]
            self.expect_same(expected, again)
            for answer in again:
                usage = answer["usage"]
                self.assertGreaterEqual(usage["cached_tokens"], usage["prompt_tokens"] - 16)
            self.assertGreater(daemon.status()["disk"]["pages_loaded"], 20)
            self.assertEqual(daemon.ctl("verify").returncode, 0)
            self.stop(daemon)
        for path in (self.pages, self.index):
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with self.start() as daemon:
            self.assertFalse(os.path.exists(self.index))
            restarted = [self.ask(daemon, prompt) for prompt in PROMPTS]
            self.expect_same(expected, restarted)
            for answer in restarted:
                usage = answer["usage"]
                self.assertGreaterEqual(usage["cached_tokens"], usage["prompt_tokens"] - 16)

    def pin(self, daemon, prompt):
        done = daemon.ctl("cache", "pin", "--json", "--", prompt)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["pages"]

    def unpinned(self, daemon):
        return json.loads(daemon.ctl("cache", "unpin", "--json").stdout)["pages"]

    def test_what_is_pinned_is_pinned_again_after_a_restart(self):
        # The file holds 20 pages, so that of three prompts only the pinned one can still be there.
        disk = "%d KiB" % (20 * 360)
        with self.start(disk=disk) as daemon:
            pages = self.pin(daemon, PROMPTS[0])
            self.stop(daemon)
        with self.start(disk=disk) as daemon:
            self.assertIn("%d of them pinned" % pages, daemon.log())
            for _ in range(2):
                for prompt in PROMPTS[1:]:
                    self.ask(daemon, prompt)
            usage = self.ask(daemon, PROMPTS[0])["usage"]
            self.assertGreaterEqual(usage["cached_tokens"], usage["prompt_tokens"] - 16)
            self.assertEqual(daemon.ctl("verify").returncode, 0)
            self.stop(daemon)
        # Once more, with less allowed; and then with nothing left to end.
        with self.start("--set", "limits.user_pinned_pages=3", disk=disk) as daemon:
            self.assertIn("3 of them pinned", daemon.log())
            self.assertIn("%d pages" % (pages - 3), daemon.log())
            self.assertEqual(self.unpinned(daemon), 3)
            self.stop(daemon)
        with self.start(disk=disk) as daemon:
            self.assertIn("0 of them pinned", daemon.log())
            self.assertEqual(self.unpinned(daemon), 0)

    def test_after_a_crash_nothing_of_it_is_used(self):
        daemon = self.start()
        expected = self.ask(daemon, PROMPTS[0])
        daemon.process.kill()
        daemon.process.wait()
        with self.start() as daemon:
            answer = self.ask(daemon, PROMPTS[0])
            self.assertEqual(answer["usage"]["cached_tokens"], 0)
            self.expect_same([expected], [answer])

    def test_other_kernels_or_another_model_do_not_use_it(self):
        ids = ("--ids", ",".join(str(i % 100) for i in range(200)), "--max-tokens", "1")
        with harness.tiny_model() as tiny:
            with self.start(model=tiny) as daemon:
                daemon.answer(*ids)
                self.stop(daemon)
            with self.start("--set", "cpu.isa=portable", model=tiny) as daemon:
                self.assertIn("other kernels", daemon.log())
                self.assertEqual(daemon.answer(*ids)["usage"]["cached_tokens"], 0)
                self.stop(daemon)
        with self.start() as daemon:
            self.assertIn("another model", daemon.log())

    def test_a_damaged_file_costs_time_only(self):
        with self.start() as daemon:
            expected = [self.ask(daemon, prompt) for prompt in PROMPTS]
            self.stop(daemon)
        with open(self.pages, "r+b") as file:
            for place in range(0, os.path.getsize(self.pages), 8192):
                file.seek(place)
                file.write(b"\x55" * 64)
        with self.start() as daemon:
            self.expect_same(expected, [self.ask(daemon, prompt) for prompt in PROMPTS])
            self.assertGreater(daemon.status()["disk"]["pages_lost"], 0)
            self.assertIn("computed again", daemon.log())
            os.truncate(self.pages, 0)
            self.expect_same(expected, [self.ask(daemon, prompt) for prompt in PROMPTS])
            os.unlink(self.pages)
            self.expect_same(expected, [self.ask(daemon, prompt) for prompt in PROMPTS])
            self.stop(daemon)
        with open(self.index, "r+b") as file:
            file.seek(100)
            file.write(b"\x55")
        with self.start() as daemon:
            self.assertIn("damaged", daemon.log())
            self.expect_same(expected[:1], [self.ask(daemon, PROMPTS[0])])

    def test_a_full_disk_costs_time_only(self):
        mount = ["mount", "-t", "tmpfs", "-o", "size=4M,mode=700", "tmpfs", self.folder]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            self.skipTest("a small file system can be mounted by root only")
        self.addCleanup(subprocess.run, ["umount", self.folder], check=True)
        with harness.Daemon() as daemon:
            expected = [self.ask(daemon, prompt) for prompt in PROMPTS]
        with self.start() as daemon:
            for _ in range(2):
                self.expect_same(expected, [self.ask(daemon, prompt) for prompt in PROMPTS])
            self.assertGreater(daemon.status()["disk"]["store_failures"], 0)
            self.assertIn("cannot store cached pages", daemon.log())
            self.stop(daemon)

    def test_flushed_or_asked_not_to_be_stored_it_is_nowhere(self):
        with self.start() as daemon:
            self.ask(daemon, PROMPTS[0], "--no-store")
            for prompt in PROMPTS[1:]:
                self.ask(daemon, prompt, "--no-store")
            self.assertEqual(daemon.status()["disk"]["pages_stored"], 0)
            for prompt in PROMPTS:
                self.ask(daemon, prompt)
            self.assertGreater(daemon.status()["disk"]["pages_stored"], 0)
            done = daemon.ctl("cache", "flush")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(daemon.status()["pages"]["cached"], 0)
            harness.wait_until(lambda: os.stat(self.pages).st_blocks == 0, "the file holds nothing any more")
            self.assertEqual(self.ask(daemon, PROMPTS[0])["usage"]["cached_tokens"], 0)

    def test_mistakes_are_told(self):
        def refusal(*options):
            done = subprocess.run([harness.binary("inferd"), "--model", harness.model_path(), "--runtime-dir",
                                   os.path.join(self.folder, "run"), *options], capture_output=True,
                                  env={k: v for k, v in os.environ.items() if k != "CACHE_DIRECTORY"},
                                  timeout=harness.PATIENCE_S)
            self.assertNotEqual(done.returncode, 0)
            return done.stderr.decode()
        self.assertIn("disk_path", refusal("--set", "memory.disk=1 GiB"))
        self.assertIn("absolute path", refusal("--set", "memory.disk_path=here"))
        self.assertIn("/none/such", refusal("--set", "memory.disk=1 GiB", "--set", "memory.disk_path=/none/such"))
        os.chmod(self.folder, 0o777)
        self.assertIn("nobody else", refusal("--set", "memory.disk=1 GiB", "--set", "memory.disk_path=" + self.folder))
        os.chmod(self.folder, 0o700)
        with self.start():
            self.assertIn("another daemon", refusal("--set", "memory.disk=1 GiB", "--set",
                                                    "memory.disk_path=" + self.folder))


if __name__ == "__main__":
    unittest.main(verbosity=2)
