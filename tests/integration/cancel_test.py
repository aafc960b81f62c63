"""A cancelled request ends at once, in whichever state it is, and computes nothing more."""

import json
import signal

import harness

# A prompt whose prefill takes long: some thousand tokens in steps of few.
LONG = ",".join(str(1000 + i % 40000) for i in range(0, 70000, 20))


class Cancel(harness.DaemonTest):
    # Without a prefix cache every prompt takes as long as the first time.
    options = ("--set", "scheduler.max_sequences=1", "--set", "scheduler.step_tokens=16",
               "--set", "memory.prefix_cache=false")

    def rows(self):
        return {row["id"]: row for row in self.daemon.call("Ps")["parameters"]["sequences"]}

    def start(self, *arguments):
        """Starts a request; returns its process, and its line of `ps` once it is there."""
        before = set(self.rows())
        client = self.daemon.start_ctl("run", "--json", *arguments)
        number = harness.wait_until(lambda: set(self.rows()) - before, "the request is listed").pop()
        return client, number

    def wait_for_state(self, number, state):
        harness.wait_until(lambda: self.rows()[number]["state"] == state, "sequence %d is %s" % (number, state))

    def counts(self):
        metrics = dict(line.rsplit(" ", 1) for line in self.daemon.ctl("metrics").stdout.decode().splitlines()
                       if not line.startswith("#"))
        return {name: int(metrics[key]) for name, key in
                (("steps", "inferd_steps_total"), ("computed", 'inferd_tokens_total{kind="computed"}'),
                 ("cancelled", 'inferd_requests_total{outcome="cancelled"}'))}

    def ended(self, client):
        """Its answer, which must say that it was cancelled."""
        out, complaint = client.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual(client.returncode, 130, complaint)
        answer = json.loads(out)
        self.assertEqual(answer["finish_reason"], "cancelled")
        self.assertEqual(len(answer["ids"]), answer["usage"]["completion_tokens"])
        return answer

    def cancel_by_client(self, client, number):
        client.send_signal(signal.SIGINT)

    def cancel_by_administrator(self, client, number):
        self.assertEqual(self.daemon.ctl("cancel", str(number)).returncode, 0)

    def check_prefilling(self, cancel):
        before = self.counts()
        client, number = self.start("--ids", LONG)
        self.wait_for_state(number, "prefilling")
        harness.wait_until(lambda: self.rows()[number]["computed_tokens"] > 0, "it has begun")
        cancel(client, number)
        self.assertEqual(self.ended(client)["ids"], [])
        after = self.counts()
        self.assertLess(after["computed"] - before["computed"], LONG.count(",") + 1, "the prompt was not finished")
        self.assertEqual(after["cancelled"] - before["cancelled"], 1)
        self.assertEqual(self.counts(), after, "nothing is computed for it any more")
        self.assertEqual(self.daemon.status()["pages"]["live"], 0)

    def check_queued_and_decoding(self, cancel):
        running, first = self.start("--raw", *harness.ENDLESS, "--", "1, 2, 3,")
        self.wait_for_state(first, "decoding")
        waiting, second = self.start("--ids", LONG)
        self.wait_for_state(second, "waiting")
        before = self.counts()
        cancel(waiting, second)
        self.assertEqual(self.ended(waiting)["ids"], [])
        self.assertEqual(self.rows()[first]["state"], "decoding", "the other goes on")
        self.assertEqual(self.counts()["cancelled"] - before["cancelled"], 1)
        cancel(running, first)
        self.assertGreater(len(self.ended(running)["ids"]), 0)
        after = self.counts()
        self.assertEqual(self.counts(), after, "nothing is computed for it any more")
        # One token a step at most, and never any of the prompt that waited.
        self.assertLessEqual(after["computed"] - before["computed"], after["steps"] - before["steps"])

    def test_while_its_prompt_is_computed_by_its_client(self):
        self.check_prefilling(self.cancel_by_client)

    def test_while_its_prompt_is_computed_by_an_administrator(self):
        self.check_prefilling(self.cancel_by_administrator)

    def test_while_it_waits_and_while_it_answers_by_its_client(self):
        self.check_queued_and_decoding(self.cancel_by_client)

    def test_while_it_waits_and_while_it_answers_by_an_administrator(self):
        self.check_queued_and_decoding(self.cancel_by_administrator)


harness.main()
