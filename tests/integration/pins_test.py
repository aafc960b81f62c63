"""Prompts that programs pin: they stay where others go, for their user alone, within the limit, and by older daemons
it is refused."""

import os
import unittest

import harness
import versions_test

inferd = harness.python_package()

# The page of the sample model takes 360 KiB, so this is room for 22; a prompt takes about 15.
SMALL_POOL = ("--set", "memory.pool=8 MiB")
PIN = 1 << 8
NOBODY = 65534


def text(word, count):
    return " ".join("%s %d" % (word, i) for i in range(count))


def run(connection, prompt):
    """Computes a prompt; returns its usage."""
    sequence = connection.run(prompt, max_tokens=1)
    sequence.text()
    return sequence.usage


class Pins(unittest.TestCase):
    def test_a_pinned_prompt_outlasts_those_that_are_not_and_its_connection(self):
        with harness.Daemon(*SMALL_POOL) as daemon:
            prompt = text("pinned", 30)
            with inferd.connect(daemon.socket) as connection:
                with self.assertRaisesRegex(inferd.NotFound, "run it first"):
                    connection.pin(prompt)
                tokens = run(connection, prompt).prompt_tokens
                self.assertEqual(connection.pin(prompt), tokens // 16 * 16)
                self.assertEqual(connection.pin(ids=connection.tokenize(prompt, bos=True)), tokens // 16 * 16)
            with inferd.connect(daemon.socket) as connection:
                for word in ("rivers", "lamps", "bridges"):
                    run(connection, text(word, 50))
                self.assertGreaterEqual(run(connection, prompt).cached_tokens, tokens // 16 * 16)
                # Without the pin it goes as others do.
                self.assertEqual(connection.unpin(), tokens // 16 * 16)
                self.assertEqual(connection.unpin(), 0)
                for word in ("rivers", "lamps", "bridges"):
                    run(connection, text(word, 50))
                self.assertLess(run(connection, prompt).cached_tokens, 16)
            self.assertEqual(daemon.ctl("verify").returncode, 0)

    def test_beyond_the_limit_nothing_is_pinned(self):
        with harness.tiny_model() as model, \
                harness.Daemon("--set", "limits.user_pinned_pages=4", model=model) as daemon, \
                inferd.connect(daemon.socket) as connection:
            for ids in ([5] * 64, [6] * 64):
                connection.run(ids=ids, max_tokens=1).text()
            self.assertEqual(connection.pin(ids=[5] * 48), 48)
            with self.assertRaisesRegex(inferd.ResourceExhausted, "user_pinned_pages allows 4"):
                connection.pin(ids=[6] * 64)
            self.assertEqual(connection.pin(ids=[5] * 64), 64)
            # One limit and one list of pins, whichever way they were made.
            refused = daemon.ctl("cache", "pin", "--ids", ",".join(["6"] * 64))
            self.assertIn(b"user_pinned_pages allows 4", refused.stderr)
            self.assertIn(b"4 pages", daemon.ctl("cache", "unpin").stdout)
            self.assertEqual(connection.unpin(), 0)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
    def test_a_pin_is_in_the_domain_that_was_asked_for_and_its_users_alone(self):
        with harness.tiny_model() as model:
            config = os.path.join(os.path.dirname(model), "inferd.toml")
            with open(config, "w") as file:
                file.write('[daemon]\naccess = "all"\n[[cache_domain]]\nname = "team"\nusers = [0]\n')
            with harness.Daemon("--config", config, model=model) as daemon, \
                    inferd.connect(daemon.socket, cache_domain="team") as connection:
                connection.run(ids=[7] * 64, max_tokens=1).text()
                self.assertEqual(connection.pin(ids=[7] * 64), 64)
                with inferd.connect(daemon.socket) as own, self.assertRaises(inferd.NotFound):
                    own.pin(ids=[7] * 64)
                self.assertIn(b"0 pages", daemon.ctl_as(NOBODY, "cache", "unpin").stdout)
                self.assertEqual(connection.unpin(), 64)

    def test_an_older_daemon_cannot_pin(self):
        with harness.tiny_model() as model, harness.Daemon(model=model) as daemon:
            def older(hello):
                hello.put("Q", 16, hello.field("Q", 16) & ~PIN)
            with versions_test.GoBetween(daemon, hello=older) as between, inferd.connect(between.path) as connection:
                connection.run(ids=[7] * 64, max_tokens=1).text()
                with self.assertRaisesRegex(inferd.Unsupported, "inferctl cache pin"):
                    connection.pin(ids=[7] * 64)
                with self.assertRaisesRegex(inferd.Unsupported, "update the daemon"):
                    connection.unpin()


if __name__ == "__main__":
    harness.main()
