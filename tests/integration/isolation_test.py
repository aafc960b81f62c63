"""Every process gets the tokens, and the log probabilities to the bit, that it would have got alone."""

import json

import harness

LONG = "The history of the sea is long. " * 60


def requests():
    """Mixed lengths, greedy and seeded."""
    return [
        ["--raw", "--max-tokens", "24", "--", "The capital of France is"],
        ["--max-tokens", "24", "--", "Name three colours."],
        ["--raw", "--max-tokens", "24", "--temperature", "0.8", "--seed", "7", "--", "Once upon a time"],
        ["--raw", "--max-tokens", "12", "--", LONG],
        ["--raw", "--max-tokens", "24", "--temperature", "1.2", "--top-k", "40", "--top-p", "0.9", "--seed", "11",
         "--", LONG[:700]],
        ["--ids", "81", "--max-tokens", "24"],
        ["--raw", "--max-tokens", "24", "--repetition-penalty", "1.3", "--seed", "3", "--", "a a a a a a"],
        ["--max-tokens", "24", "--temperature", "0.7", "--min-p", "0.05", "--seed", "42", "--",
         "Tell me a story about a lighthouse."],
    ]


def essence(answer):
    """What must not depend on neighbours."""
    return {name: answer[name] for name in ("ids", "text", "finish_reason", "logprobs")}


class Isolation(harness.DaemonTest):
    def together(self, daemon, all_requests):
        running = [daemon.start_ctl("run", "--json", "--logprobs", "5", *request) for request in all_requests]
        answers = []
        for process in running:
            out, complaint = process.communicate(timeout=harness.PATIENCE_S)
            self.assertEqual(process.returncode, 0, complaint)
            answers.append(essence(json.loads(out)))
        return answers

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.alone = [essence(cls.daemon.answer("--logprobs", "5", *request)) for request in requests()]

    def test_three_processes_at_once_get_what_each_gets_alone(self):
        self.assertEqual(self.together(self.daemon, requests()[:3]), self.alone[:3])

    def test_eight_processes_at_once_get_what_each_gets_alone(self):
        self.assertEqual(self.together(self.daemon, requests()), self.alone)

    def test_the_same_prompt_four_times_at_once_gives_one_answer(self):
        for answer in self.together(self.daemon, [requests()[2]] * 4):
            self.assertEqual(answer, self.alone[2])

    def test_neither_chunks_nor_threads_nor_width_of_the_batch_matter(self):
        for options in (["--set", "scheduler.step_tokens=7", "--set", "scheduler.max_sequences=7",
                         "--set", "cpu.threads=1"],
                        ["--set", "scheduler.step_tokens=64", "--set", "cpu.threads=2"],
                        ["--set", "scheduler.max_sequences=2"]):
            with self.subTest(options=options), harness.Daemon(*options) as daemon:
                self.assertEqual(self.together(daemon, requests()), self.alone)

    def test_another_seed_draws_another_answer(self):
        request = list(requests()[2])
        request[request.index("7")] = "8"
        self.assertNotEqual(essence(self.daemon.answer("--logprobs", "5", *request))["ids"], self.alone[2]["ids"])


harness.main()
