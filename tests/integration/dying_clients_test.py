"""A client that dies, is cancelled or is interrupted leaves nothing behind."""

import os
import random
import signal
import time

import harness

ENDLESS = ["--raw", *harness.ENDLESS, "--max-tokens", "2000", "--", "1, 2, 3, 4, 5,"]


STEP_TOKENS = 16
PROMPT_TOKENS = 3000


class LongPrompts(harness.DaemonTest):
    options = ("--set", "scheduler.step_tokens=%d" % STEP_TOKENS, "--set", "scheduler.max_sequences=8")

    def computed(self):
        """Tokens that the daemon has computed until now, counted between two of its steps."""
        return self.daemon.status()["tokens"]["computed"]

    def test_a_prompt_is_computed_no_further_than_one_chunk_after_its_client_is_gone(self):
        for end in (signal.SIGKILL, signal.SIGINT):
            before = self.computed()
            # Another prompt each time: nothing of it is cached.
            prompt = ",".join(str(5 + (i * 7 + end) % 300) for i in range(PROMPT_TOKENS))
            client = self.daemon.start_ctl("run", "--ids", prompt, "--max-tokens", "5")
            harness.wait_until(lambda: self.computed() > before + 4 * STEP_TOKENS or client.poll() is not None,
                               "the prompt is being read")
            self.assertIsNone(client.poll(), "it ended by itself")
            client.send_signal(end)
            client.communicate(timeout=harness.PATIENCE_S)
            at_the_end = self.computed()
            self.daemon.wait_idle()
            self.assertLess(self.computed() - before, PROMPT_TOKENS, "it was gone before all of it was read")
            self.assertLessEqual(self.computed() - at_the_end, STEP_TOKENS)


class DyingClients(harness.DaemonTest):
    def baseline(self):
        """Waits for idleness, then counts what must come back to the same figures."""
        self.daemon.wait_idle()
        harness.wait_until(lambda: self.daemon.status()["sessions"] == 0, "no session is left")
        # The connections of the calls above may take the daemon a moment to close.
        readings = []
        for _ in range(10):
            readings.append(self.daemon.descriptors())
            time.sleep(0.02)
        return min(readings)

    def running_sequences(self):
        return self.daemon.call("Ps")["parameters"]["sequences"]

    def test_killed_clients_leave_no_page_sequence_session_or_descriptor(self):
        seed = random.randrange(1 << 32)
        print("seed", seed)
        chance = random.Random(seed)
        self.daemon.answer("--raw", "--max-tokens", "3", "--", "warm")
        before = self.baseline()
        for _ in range(8):
            clients = [self.daemon.start_ctl("run", *ENDLESS) for _ in range(4)]
            time.sleep(chance.uniform(0, 0.6))
            for client in clients:
                client.kill()
                client.communicate()
        self.assertEqual(self.baseline(), before)
        self.assertEqual(self.daemon.ctl("verify").returncode, 0)

    def test_a_killed_client_does_not_disturb_its_neighbour(self):
        request = ["--raw", "--max-tokens", "60", "--logprobs", "2", "--", "Once upon a time"]
        alone = self.daemon.answer(*request)
        victim = self.daemon.start_ctl("run", *ENDLESS)
        harness.wait_until(self.running_sequences, "the victim runs")
        neighbour = self.daemon.start_ctl("run", "--json", *request)
        victim.kill()
        victim.communicate()
        out, complaint = neighbour.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(neighbour.returncode, 0, complaint)
        self.assertEqual(harness.json.loads(out)["logprobs"], alone["logprobs"])

    def test_a_stopped_client_does_not_mute_the_others(self):
        stopped = self.daemon.start_ctl("run", *ENDLESS)
        try:
            harness.wait_until(self.running_sequences, "it runs")
            stopped.send_signal(signal.SIGSTOP)
            answer = self.daemon.answer("--raw", "--max-tokens", "30", "--", "1, 2, 3, 4, 5,")
            self.assertEqual(len(answer["ids"]), 30)
        finally:
            stopped.kill()
            stopped.communicate()

    def test_ctrl_c_cancels_and_says_so(self):
        client = self.daemon.start_ctl("run", *ENDLESS)
        # Only once it prints has it surely got so far that the signal is caught.
        os.read(client.stdout.fileno(), 1)
        client.send_signal(signal.SIGINT)
        _, complaint = client.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(client.returncode, 130)
        self.assertIn(b"cancelled", complaint)

    def test_cancel_ends_a_sequence_of_another_process(self):
        client = self.daemon.start_ctl("run", "--json", *ENDLESS)
        rows = harness.wait_until(self.running_sequences, "it runs")
        number = str(rows[0]["id"])
        table = self.daemon.ctl("ps")
        self.assertIn(number.encode(), table.stdout.split())
        self.assertEqual(self.daemon.ctl("cancel", number).returncode, 0)
        out, _ = client.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(harness.json.loads(out)["finish_reason"], "cancelled")
        self.assertEqual(client.returncode, 130)


harness.main()
