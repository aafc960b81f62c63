"""Scoring a given continuation: the log probabilities are the reference's, and the same bits however they are computed."""

import json
import math
import os
import struct
import unittest

import harness

inferd = harness.python_package()
TEXT = "The tide came in over the flat sand, and the boats that had leaned on their sides all day stood up again."


def bits(values):
    return [struct.pack("f", value) for value in values]


def scores(sequence):
    """Of a whole sequence: ids, log probabilities and alternatives."""
    chunks = list(sequence)
    ids = [id for chunk in chunks for id in chunk.ids]
    logprobs = [value for chunk in chunks for value in chunk.logprobs]
    top = [row for chunk in chunks for row in chunk.top or ()]
    return ids, logprobs, top


class Scoring(harness.DaemonTest):
    # Few rows in a step, so that a continuation takes many.
    options = ("--set", "scheduler.max_sequences=8")

    def setUp(self):
        self.connection = inferd.connect(self.daemon.socket)
        self.addCleanup(harness.DaemonTest.tearDown, self)
        self.addCleanup(self.connection.close)

    def tearDown(self):  # DaemonTest's, once the connection is closed
        pass

    def test_they_are_those_of_the_reference(self):
        with open(os.path.join(harness.SOURCE, "tests/golden/logits_smollm2_q4_1.json"), encoding="utf-8") as file:
            golden = json.load(file)
        first = len(golden["ids"]) // 2
        ids, logprobs, _ = scores(self.connection.score(ids=golden["ids"][:first],
                                                        continuation_ids=golden["ids"][first:]))
        self.assertEqual(ids, golden["ids"][first:])
        # The reference tells of each position how unlikely the next token is; the first one's is that of first - 1.
        wanted = golden["nll"][first - 1:first - 1 + len(ids)]
        self.assertEqual(len(wanted), len(logprobs))
        found = -sum(logprobs) / len(logprobs)
        self.assertLess(abs(math.exp(found - sum(wanted) / len(wanted)) - 1), 0.02)
        # What is left is rounding: token by token they go together.
        differences = sorted(abs(value + nll) for value, nll in zip(logprobs, wanted))
        self.assertLess(differences[len(differences) // 2], 0.1)

    def test_of_a_generated_answer_they_are_those_it_was_generated_with(self):
        answer = self.connection.run(TEXT, max_tokens=40, logprobs=3, temperature=0.9, seed=5, ignore_eos=True)
        ids, logprobs, top = scores(answer)
        scored = self.connection.score(TEXT, continuation_ids=ids, top=3, no_store=True)
        again = scores(scored)
        self.assertEqual(again[0], ids)
        self.assertEqual(bits(again[1]), bits(logprobs))
        self.assertEqual(again[2], top)
        self.assertEqual(scored.text_so_far, answer.text_so_far)
        self.assertEqual(scored.finish_reason, "length")

    def test_they_are_the_same_bits_alone_cached_and_beside_others(self):
        prompt = self.connection.tokenize(TEXT * 3, bos=True)
        rest = self.connection.tokenize(TEXT.replace("boats", "ships") * 2)
        alone = scores(self.connection.score(ids=prompt, continuation_ids=rest, top=2, no_store=True))
        self.assertEqual(len(alone[1]), len(rest))
        others = [self.connection.run(TEXT, max_tokens=100, ignore_eos=True, seed=i, temperature=1) for i in range(4)]
        first = self.connection.score(ids=prompt, continuation_ids=rest, top=2)
        self.assertEqual(scores(first), alone)
        cached = self.connection.score(ids=prompt, continuation_ids=rest, top=2)
        self.assertEqual(scores(cached), alone)
        self.assertGreaterEqual(cached.usage.cached_tokens, len(prompt) - 16)
        self.assertEqual(cached.usage.prompt_tokens, len(prompt))
        self.assertEqual(cached.usage.completion_tokens, len(rest))
        # Cut elsewhere: what is scored in both is scored alike.
        later = self.connection.score(ids=prompt + rest[:7], continuation_ids=rest[7:], top=2)
        self.assertEqual(scores(later), tuple(list(part)[7:] for part in alone))
        for other in others:
            other.close()

    def test_samples_of_one_prompt_come_at_once(self):
        options = {"temperature": 0.9, "seed": 3, "max_tokens": 12}
        samples = self.connection.samples(3, TEXT, **options)
        texts = [sample.text() for sample in samples]
        self.assertEqual(texts, [self.connection.run(TEXT, branch=i, **options).text() for i in range(3)])
        self.assertEqual(len(set(texts)), 3)
        computed = sum(sample.usage.computed_tokens for sample in samples)
        self.assertLess(computed, samples[0].usage.prompt_tokens + 3 * 12 + 3)

    def test_a_running_sequence_is_reniced(self):
        sequence = self.connection.run(TEXT, ignore_eos=True)
        next(sequence)
        sequence.renice(priority="batch", nice=7)
        (line,) = [line for line in self.daemon.call("Ps")["parameters"]["sequences"]]
        self.assertEqual((line["priority"], line["nice"]), ("batch", 7))
        sequence.cancel()
        sequence.text()
        with self.assertRaises(inferd.NotFound):
            sequence.renice(nice=8)

    def test_what_cannot_be_scored_is_told(self):
        with self.assertRaisesRegex(inferd.InvalidArgument, "no tokens"):
            self.connection.score(TEXT, "")
        with self.assertRaisesRegex(inferd.InvalidArgument, "follows nothing"):
            self.connection.score(ids=[], continuation_ids=[1, 2])
        with self.assertRaisesRegex(inferd.ResourceExhausted, "context"):
            self.connection.score(TEXT, "word " * 20000)


if __name__ == "__main__":
    harness.main()
