"""One prompt through daemon and rings gives the ids that an engine not of this project gives."""

import json
import os

import harness

END_OF_ANSWER = 2  # <|im_end|>


class FirstAnswers(harness.DaemonTest):
    def golden(self):
        with open(os.path.join(harness.SOURCE, "tests/golden/first_answers.json")) as file:
            return json.load(file)

    def check(self, answer, expected, prompt_tokens):
        ended = expected and expected[-1] == END_OF_ANSWER
        ids = [id for id in answer["ids"] if id != END_OF_ANSWER]
        wanted = expected[:-1] if ended else expected
        self.assertEqual(ids[:len(wanted)], wanted)
        if ended:
            self.assertEqual(len(ids), len(wanted))
            self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(answer["usage"]["prompt_tokens"], prompt_tokens)

    def test_ids_are_those_of_the_reference(self):
        for case in self.golden():
            with self.subTest(case=case):
                count = str(len(case["ids"]))
                if "raw" in case:
                    answer = self.daemon.answer("--raw", "--max-tokens", count, "--", case["raw"])
                else:
                    answer = self.daemon.answer("--max-tokens", count, "--", case["chat"])
                self.check(answer, case["ids"], len(case["prompt_ids"]))

    def test_a_prompt_of_ids_is_the_prompt_itself(self):
        for case in self.golden():
            with self.subTest(case=case):
                ids = ",".join(map(str, case["prompt_ids"]))
                answer = self.daemon.answer("--ids", ids, "--max-tokens", str(len(case["ids"])))
                self.check(answer, case["ids"], len(case["prompt_ids"]))

    def test_streamed_text_is_the_text_of_the_ids(self):
        done = self.daemon.ctl("run", "--max-tokens", "40", "--", "Write the word for water in five languages.")
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = self.daemon.answer("--max-tokens", "40", "--", "Write the word for water in five languages.")
        self.assertEqual(done.stdout.decode().rstrip("\n"), answer["text"].rstrip("\n"))
        ids = " ".join(map(str, answer["ids"])).encode()
        self.assertEqual(self.daemon.ctl("detokenize", input=ids).stdout.decode(), answer["text"])

    def test_the_prompt_may_come_on_standard_input(self):
        typed = self.daemon.answer("--raw", "--max-tokens", "8", "--", "The capital of France is")
        piped = self.daemon.answer("--raw", "--max-tokens", "8", "-", input=b"The capital of France is")
        self.assertEqual(piped["ids"], typed["ids"])

    def test_usage_adds_up(self):
        answer = self.daemon.answer("--raw", "--max-tokens", "9", "--", "1, 2, 3, 4, 5,")
        usage = answer["usage"]
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(len(answer["ids"]), 9)
        self.assertEqual(usage["completion_tokens"], 9)
        self.assertLessEqual(usage["cached_tokens"], usage["prompt_tokens"] - 1)
        self.assertGreater(usage["ttft_ms"], 0)
        self.assertGreater(usage["itl_ms"], 0)
        self.assertIsNone(answer["logprobs"])

    def test_log_probabilities_rank_the_greedy_token_first(self):
        answer = self.daemon.answer("--raw", "--max-tokens", "6", "--logprobs", "3", "--", "1, 2, 3, 4, 5,")
        self.assertEqual([row["id"] for row in answer["logprobs"]], answer["ids"])
        for row in answer["logprobs"]:
            self.assertEqual(len(row["top"]), 3)
            self.assertEqual(row["top"][0], {"id": row["id"], "logprob": row["logprob"]})
            values = [other["logprob"] for other in row["top"]]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertLess(values[0], 0)

    def test_a_stop_text_ends_the_answer_and_is_not_part_of_it(self):
        answer = self.daemon.answer("--raw", "--max-tokens", "40", "--stop", "12,", "--", "1, 2, 3, 4, 5,")
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(answer["text"], " 6, 7, 8, 9, 10, 11, ")

    def test_a_forbidden_token_does_not_come(self):
        usual = self.daemon.answer("--raw", "--max-tokens", "1", "--", "1, 2, 3, 4, 5,")["ids"][0]
        other = self.daemon.answer("--raw", "--max-tokens", "1", "--logit-bias", "%d=-inf" % usual, "--",
                                   "1, 2, 3, 4, 5,")["ids"][0]
        self.assertNotEqual(usual, other)

    def test_a_system_message_changes_the_prompt(self):
        without = self.daemon.answer("--max-tokens", "1", "--", "Hello")
        with_system = self.daemon.answer("--max-tokens", "1", "--system", "You are a pirate who answers in rhyme.",
                                         "--", "Hello")
        self.assertNotEqual(with_system["usage"]["prompt_tokens"], without["usage"]["prompt_tokens"])


harness.main()
