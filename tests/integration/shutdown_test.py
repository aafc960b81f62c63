"""SIGTERM and drain: running answers are finished, nothing is left behind, the exit code is 0."""

import json
import os
import signal
import unittest

import harness

SHORT = ["--raw", "--max-tokens", "40", "--", "1, 2, 3, 4, 5,"]
# These two tokens would end the answer.
ENDLESS = ["--logit-bias", "2=-inf", "--logit-bias", "0=-inf", "--", "1, 2, 3, 4, 5,"]


class Shutdown(unittest.TestCase):
    def start(self, *options):
        daemon = harness.Daemon(*options)
        self.addCleanup(daemon.stop)
        return daemon

    def start_answer(self, daemon, *request):
        """An answer that has begun to stream."""
        client = daemon.start_ctl("run", *request)
        first = os.read(client.stdout.fileno(), 1)
        self.assertNotEqual(first, b"", client.stderr.read() if client.poll() is not None else "")
        return client, first

    def test_an_idle_daemon_ends_at_once_and_takes_its_sockets_along(self):
        for which in (signal.SIGTERM, signal.SIGINT):
            daemon = self.start()
            self.assertEqual(daemon.end(which), 0, daemon.log())
            self.assertFalse(os.path.exists(daemon.socket))
            self.assertFalse(os.path.exists(daemon.control))

    def test_sigterm_lets_a_running_answer_end(self):
        daemon = self.start()
        whole = daemon.ctl("run", *SHORT).stdout
        client, first = self.start_answer(daemon, *SHORT)
        self.assertEqual(daemon.end(), 0, daemon.log())
        rest, complaint = client.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(client.returncode, 0, complaint)
        self.assertEqual(first + rest, whole)

    def test_sigterm_under_load_ends_every_request_that_was_taken_and_takes_no_more(self):
        request = ["--raw", "--max-tokens", "250", *ENDLESS]
        daemon = self.start("--set", "scheduler.max_sequences=2", "--set", "daemon.drain_timeout=1 h")
        whole = daemon.ctl("run", *request).stdout
        clients = [self.start_answer(daemon, *request) for _ in range(2)]
        waiting = [daemon.start_ctl("run", *request) for _ in range(2)]
        harness.wait_until(lambda: daemon.status()["sequences"] == 4, "two requests run and two wait")
        daemon.process.send_signal(signal.SIGTERM)
        harness.wait_until(lambda: "stopping: running requests have" in daemon.log(), "the daemon is stopping")
        late = daemon.ctl("run", *request)
        self.assertEqual(late.returncode, 3, late.stderr)
        self.assertEqual(late.stdout, b"")
        for client, first in clients + [(client, b"") for client in waiting]:
            rest, complaint = client.communicate(timeout=harness.PATIENCE_S)
            self.assertEqual(client.returncode, 0, complaint)
            self.assertEqual(first + rest, whole)
        self.assertEqual(daemon.process.wait(harness.PATIENCE_S), 0, daemon.log())

    def test_what_outlasts_drain_timeout_or_a_second_signal_is_ended_with_a_status(self):
        for options, signals in ((["--set", "daemon.drain_timeout=0.2"], 1), ([], 2)):
            daemon = self.start(*options)
            client, _ = self.start_answer(daemon, "--raw", *ENDLESS)
            for _ in range(signals):
                daemon.process.send_signal(signal.SIGTERM)
                harness.wait_until(lambda: "stopping" in daemon.log(), "the daemon is stopping")
            _, complaint = client.communicate(timeout=harness.PATIENCE_S)
            self.assertEqual(client.returncode, 3, complaint)
            self.assertIn(b"shutting down", complaint)
            self.assertEqual(daemon.process.wait(harness.PATIENCE_S), 0, daemon.log())

    def test_drain_lets_a_running_answer_end_and_then_ends_the_daemon(self):
        daemon = self.start()
        whole = daemon.ctl("run", *SHORT).stdout
        client, first = self.start_answer(daemon, *SHORT)
        self.assertEqual(daemon.ctl("drain").returncode, 0)
        rest, complaint = client.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(client.returncode, 0, complaint)
        self.assertEqual(first + rest, whole)
        self.assertEqual(daemon.process.wait(harness.PATIENCE_S), 0, daemon.log())

    def test_a_killed_daemon_is_a_sentence_to_its_client_and_a_new_one_starts_in_its_place(self):
        daemon = self.start()
        client, _ = self.start_answer(daemon, "--raw", *ENDLESS)
        daemon.process.kill()
        daemon.process.wait()
        _, complaint = client.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(client.returncode, 3, complaint)
        self.assertTrue(complaint.decode().rstrip("\n").rsplit("\n", 1)[-1].startswith("inferctl: "), complaint)
        # What the killed daemon left in its folder must not stop the next one.
        command = [harness.binary("inferd"), "--model", harness.model_path(), "--runtime-dir", daemon.runtime]
        with open(daemon.log_path, "ab") as log:
            daemon.process = harness.subprocess.Popen(command, stdin=harness.subprocess.DEVNULL, stdout=log, stderr=log)
        harness.wait_until(daemon._answers, "the second daemon answers")
        self.assertEqual(len(daemon.answer(*SHORT)["ids"]), 40)

    def test_a_client_waits_for_a_daemon_that_cannot_answer_yet_and_says_so(self):
        daemon = self.start()
        whole = daemon.ctl("run", *SHORT).stdout
        # As one that systemd started for this client, and that loads its model.
        daemon.process.send_signal(signal.SIGSTOP)
        client = daemon.start_ctl("run", *SHORT)
        self.assertEqual(client.stderr.readline(),
                         b"inferctl: waiting for the daemon; it may be loading its model (Ctrl-C gives up)\n")
        daemon.process.send_signal(signal.SIGCONT)
        text, complaint = client.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(client.returncode, 0, complaint)
        self.assertEqual(text, whole)

    def test_a_second_daemon_in_the_same_folder_is_refused(self):
        daemon = self.start()
        done = harness.subprocess.run(
            [harness.binary("inferd"), "--model", harness.model_path(), "--runtime-dir", daemon.runtime],
            capture_output=True, timeout=harness.PATIENCE_S)
        self.assertEqual(done.returncode, 69, done.stderr)
        self.assertIn(daemon.runtime, (done.stderr + done.stdout).decode())
        self.assertEqual(len(daemon.answer(*SHORT)["ids"]), 40)

    def test_a_missing_model_file_is_a_sentence_and_an_exit_code(self):
        with harness.tempfile.TemporaryDirectory() as folder:
            done = harness.subprocess.run(
                [harness.binary("inferd"), "--model", folder + "/no.gguf", "--runtime-dir", folder + "/run"],
                capture_output=True, timeout=harness.PATIENCE_S)
            self.assertEqual(done.returncode, 66, done.stderr)
            self.assertIn(folder + "/no.gguf", (done.stderr + done.stdout).decode())

    def test_reload_and_log_level_leave_the_daemon_running(self):
        daemon = self.start()
        self.assertEqual(daemon.ctl("log-level", "debug").returncode, 0)
        daemon.process.send_signal(signal.SIGHUP)
        self.assertEqual(json.loads(daemon.ctl("status", "--json").stdout)["pid"], daemon.process.pid)
        self.assertEqual(len(daemon.answer(*SHORT)["ids"]), 40)


harness.main()
