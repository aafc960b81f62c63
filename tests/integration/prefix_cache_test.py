"""Prompts that begin alike are computed once, and nobody can tell from the answers."""

import json

import harness

PREAMBLE = "You are a careful assistant. Answer in one short sentence, and never guess. " * 40
QUESTIONS = ["What is a lighthouse?", "Who wrote Hamlet?", "Why is the sky blue?", "What is 2 + 2?",
             "Name a colour.", "What is a river?", "What is a bridge?", "What is snow?"]


def request(question):
    return ["--raw", "--max-tokens", "12", "--temperature", "0.7", "--seed", "5", "--", PREAMBLE + question]


def essence(answer):
    return {name: answer[name] for name in ("ids", "text", "finish_reason", "logprobs")}


class PrefixCache(harness.DaemonTest):
    def answer(self, daemon, question):
        return daemon.answer("--logprobs", "5", *request(question))

    def test_cached_or_not_the_answer_is_the_same_to_the_bit(self):
        with harness.Daemon("--set", "memory.prefix_cache=false") as plain:
            expected = [essence(self.answer(plain, question)) for question in QUESTIONS[:3]]
            self.assertEqual(plain.status()["pages"]["cached"], 0)
            self.assertEqual(plain.status()["tokens"]["cached"], 0)
        for _ in range(2):
            for question, wanted in zip(QUESTIONS, expected):
                answer = self.answer(self.daemon, question)
                self.assertEqual(essence(answer), wanted)
        usage = answer["usage"]
        self.assertEqual(usage["cached_tokens"], usage["prompt_tokens"] - 1, "asked before, word for word")
        self.assertGreater(self.daemon.status()["pages"]["cached"], 30)

    def test_pinned_prefixes_outlast_those_that_are_not(self):
        with harness.Daemon("--set", "memory.pool=8 MiB", "--set", "limits.user_pinned_pages=12") as daemon:
            text = " ".join("pinned %d" % i for i in range(30))
            pinned = daemon.ctl("cache", "pin", "--json", "--", text)
            self.assertEqual(pinned.returncode, 0, pinned.stderr)
            self.assertGreater(json.loads(pinned.stdout)["pages"], 4)
            for word in ("rivers", "lamps", "bridges"):
                daemon.answer("--raw", "--max-tokens", "2", "--", " ".join("%s %d" % (word, i) for i in range(50)))
            usage = daemon.answer("--raw", "--max-tokens", "2", "--", text)["usage"]
            self.assertGreaterEqual(usage["cached_tokens"], usage["prompt_tokens"] - 16)
            # Beyond the limit nothing is pinned; and a request that needs the pages gets them.
            refused = daemon.ctl("cache", "pin", "--", " ".join("more %d" % i for i in range(50)))
            self.assertIn(b"user_pinned_pages", refused.stderr)
            daemon.answer("--ids", ",".join(str(100 + i) for i in range(330)), "--max-tokens", "2")
            self.assertEqual(daemon.ctl("verify").returncode, 0)
            self.assertEqual(daemon.ctl("cache", "unpin").returncode, 0)

    def test_eight_that_arrive_together_compute_the_preamble_once(self):
        with harness.Daemon() as daemon:
            processes = [daemon.start_ctl("run", "--json", *request(question)) for question in QUESTIONS]
            answers = []
            for process in processes:
                out, complaint = process.communicate(timeout=harness.PATIENCE_S)
                self.assertEqual(process.returncode, 0, complaint)
                answers.append(json.loads(out))
            prompts = [answer["usage"]["prompt_tokens"] for answer in answers]
            cached = [answer["usage"]["cached_tokens"] for answer in answers]
            tokens = daemon.status()["tokens"]
            self.assertEqual(sum(cached), tokens["cached"])
            self.assertEqual(sum(prompts), tokens["prompt"])
            # One computed the preamble, the others at most their own words and what is left of a page.
            self.assertEqual(cached.count(0), 1)
            self.assertLess(tokens["computed"], max(prompts) + 8 * (12 + 24))
            for prompt, hit in zip(prompts, cached):
                self.assertLess(hit, prompt)


if __name__ == "__main__":
    harness.main()
