"""The configuration file, from its mistakes to what a running daemon takes over from it; and the log."""

import os
import signal
import subprocess
import tempfile
import unittest

import harness

SHORT = ["--raw", "--max-tokens", "8", "--", "1, 2, 3, 4, 5,"]
# Each key with a value that is not its default, and both as the log writes them.
RELOADABLE = {
    "daemon": [("drain_timeout", '"7 s"', '"30 s"', '"7 s"'), ("log_level", '"debug"', '"info"', '"debug"')],
    "memory": [("cache_idle", '"90 s"', '"600 s"', '"90 s"')],
    "limits": [("connections", "9", "1024", "9"), ("connections_per_user", "1", "256", "1"),
               ("sequences_per_session", "3", "256", "3"), ("handshake_timeout", "2", '"5 s"', '"2 s"'),
               ("user_ring_bytes", '"3 MiB"', '"256 MiB"', '"3 MiB"'), ("user_arena_bytes", "2000001", '"1 GiB"', "2000001"),
               ("stall_timeout", '"1 min"', '"30 s"', '"60 s"'), ("control_connections", "5", "64", "5")],
}
NEEDS_RESTART = {
    "daemon": [("access", '"all"', '"user"', '"all"'), ("group", '"llm"', '"inferd"', '"llm"')],
    "memory": [("pool", '"64 MiB"', '"auto"', '"64 MiB"'), ("prefix_cache", "false", "true", "false")],
    "scheduler": [("step_tokens", "256", "512", "256"), ("max_sequences", "9", "64", "9"),
                  ("queue", "8", "1024", "8"), ("itl_target_ms", "70", "50", "70")],
    "cpu": [("threads", "1", '"auto"', "1"), ("isa", '"portable"', '"auto"', '"portable"')],
}


def text_of(*tables):
    sections = {}
    for table in tables:
        for section, keys in table.items():
            sections.setdefault(section, []).extend("%s = %s" % key[:2] for key in keys)
    return "\n".join("[%s]\n%s" % (section, "\n".join(lines)) for section, lines in sections.items())


def start(*arguments):
    """Runs the daemon to its end."""
    return subprocess.run([harness.binary("inferd"), *arguments], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=harness.PATIENCE_S)


class Mistakes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "inferd.toml")

    def test_all_mistakes_are_named_with_their_place_before_anything_is_done(self):
        with open(self.file, "w") as file:
            file.write('[daemon]\nlog_level = "loud"\n[scheduler]\n  queu = 3\n[cpu]\nthreads = 0\n')
        for more in ([], ["--check-config"]):
            done = start("--config", self.file, *more)
            self.assertEqual(done.returncode, 78, done.stderr)
            lines = done.stderr.splitlines()
            self.assertEqual(len(lines), 3, done.stderr)
            self.assertTrue(lines[0].startswith(self.file + ":2:13: daemon.log_level: expected one of"), lines[0])
            self.assertEqual(lines[1], self.file + ":4:3: unknown key 'queu' in [scheduler]; did you mean 'queue'?")
            self.assertTrue(lines[2].startswith(self.file + ":6:11: cpu.threads: expected \"auto\" or"), lines[2])
            self.assertEqual(done.stdout, "")

    def test_a_sound_file_has_no_mistakes(self):
        with open(self.file, "w") as file:
            file.write(text_of(RELOADABLE, NEEDS_RESTART) + '\n[[model]]\npath = "/none.gguf"\n')
        done = start("--config", self.file, "--check-config")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("no mistakes", done.stdout)

    def test_a_missing_file_is_named(self):
        done = start("--config", self.file)
        self.assertEqual(done.returncode, 66)
        self.assertIn(self.file + ": there is no such file", done.stderr)

    def test_a_folder_is_no_configuration(self):
        done = start("--config", os.path.dirname(self.file))
        self.assertEqual(done.returncode, 71)
        self.assertIn(os.path.dirname(self.file), done.stderr)

    def test_a_mistake_of_the_command_line_is_named_by_its_option(self):
        done = start("--model", "x.gguf", "--set", "scheduler.queue=none")
        self.assertEqual(done.returncode, 78)
        self.assertTrue(done.stderr.startswith("--set scheduler.queue=none: "), done.stderr)


class Reload(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "inferd.toml")
        self.write("")
        self.daemon = harness.Daemon("--config", self.file)
        self.addCleanup(self.daemon.stop)

    def write(self, text):
        with open(self.file, "w") as file:
            file.write(text)

    def reload(self, *parts):
        """Sends SIGHUP and waits until the log has all of the parts after what it had before."""
        before = len(self.daemon.log())
        self.daemon.process.send_signal(signal.SIGHUP)
        for part in parts:
            harness.wait_until(lambda: part in self.daemon.log()[before:], "the log has: " + part)
        return self.daemon.log()[before:]

    def test_each_key_is_applied_or_named_as_needing_a_restart(self):
        self.write(text_of(RELOADABLE, NEEDS_RESTART))
        applied = ["reload: %s.%s changes from %s to %s" % (section, name, before, after)
                   for section, keys in RELOADABLE.items() for name, _, before, after in keys]
        kept = ["reload: %s.%s stays %s; %s needs a restart" % (section, name, before, after)
                for section, keys in NEEDS_RESTART.items() for name, _, before, after in keys]
        said = self.reload(*applied, *kept)
        self.assertEqual(said.count("reload: "), len(applied) + len(kept), said)
        # In force: one connection a user, and messages of level debug.
        first = self.daemon.start_ctl("chat", "--no-history", stdin=subprocess.PIPE)
        harness.wait_until(lambda: self.daemon.status()["sessions"] == 1, "one client is connected")
        refused = self.daemon.ctl("run", *SHORT)
        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertIn(b"[limits] connections_per_user", refused.stderr)
        first.communicate(timeout=harness.PATIENCE_S)
        self.assertIn("] debug session ", self.daemon.log())
        # What needs a restart is still named the next time; what was applied is not.
        said = self.reload(kept[-1])
        self.assertEqual(said.count("reload: "), len(kept), said)

    def test_a_mistake_changes_nothing_and_is_named_with_its_place(self):
        self.write('[daemon]\nlog_level = "debug"\n[limits]\nconnections = "few"\n')
        said = self.reload(self.file + ":4:15: limits.connections: expected an integer")
        self.assertIn("nothing was changed", said)
        self.assertEqual(len(self.daemon.answer(*SHORT)["ids"]), 8)
        self.assertNotIn("] debug ", self.daemon.log())

    def test_a_file_that_is_gone_changes_nothing(self):
        os.unlink(self.file)
        self.reload(self.file + ": there is no such file")
        self.assertEqual(len(self.daemon.answer(*SHORT)["ids"]), 8)

    def test_inferctl_says_the_same_as_the_log(self):
        self.write("[limits]\nconnections = 9\n[scheduler]\nqueue = 8\n")
        done = self.daemon.ctl("reload")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout.decode(), r"now in force +limits\.connections: 1024 -> 9\n")
        self.assertRegex(done.stdout.decode(), r"after a restart +scheduler\.queue: 1024 -> 8\n")
        self.assertIn("reload: limits.connections changes from 1024 to 9", self.daemon.log())
        self.assertIn("reload: scheduler.queue stays 1024; 8 needs a restart", self.daemon.log())


class Log(unittest.TestCase):
    def test_a_full_disk_under_the_log_stops_nothing(self):
        with open("/dev/full", "wb") as full:
            with harness.Daemon("--set", "daemon.log_level=trace", log=full) as daemon:
                self.assertEqual(len(daemon.answer(*SHORT)["ids"]), 8)

    def test_a_log_that_nobody_reads_any_more_stops_nothing(self):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb") as pipe:
            with harness.Daemon("--set", "daemon.log_level=trace", log=pipe) as daemon:
                self.assertEqual(len(daemon.answer(*SHORT)["ids"]), 8)


harness.main()
