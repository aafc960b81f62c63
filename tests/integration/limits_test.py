"""What does not fit is refused at once with the figures; what ends at a limit says which; nothing is cut or shifted.

On small models with random weights. Two of them differ in nothing but the context that they claim, so the answer
that the shorter one ends must be the beginning of the longer one's, log probabilities included.
"""

import os
import shutil
import subprocess
import tempfile

import harness

SHORT = 64
PROMPT = [7 + 5 * i for i in range(50)]
FORBID_THE_END = [word for token in (0, 1, 2) for word in ("--logit-bias", "%d=-inf" % token)]


def make_model(folder, context):
    path = os.path.join(folder, "context-%d.gguf" % context)
    subprocess.run([harness.binary("inferd-bench"), "make-model", "--output", path, "--type", "q8_0",
                    "--context", str(context), "--embedding", "64", "--heads", "4", "--kv-heads", "4", "--head-dim", "64",
                    "--feed-forward", "96"],
                   check=True, stdout=subprocess.DEVNULL)
    return path


def ids(tokens):
    return ",".join(map(str, tokens))


def fair_part(answer):
    return {"ids": answer["ids"], "logprobs": answer["logprobs"]}


class Limits(harness.DaemonTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="inferd-limits-")
        cls.daemon = harness.Daemon(model=make_model(cls.folder, SHORT))
        with harness.Daemon(model=make_model(cls.folder, 1024)) as roomy:
            cls.long_answer = roomy.answer("--ids", ids(PROMPT), "--max-tokens", "200", "--logprobs", "3",
                                           *FORBID_THE_END)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        shutil.rmtree(cls.folder)

    def ask(self, tokens, *options, daemon=None):
        return (daemon or self.daemon).answer("--ids", ids(tokens), "--logprobs", "3", *FORBID_THE_END, *options)

    def begins_the_long_answer(self, answer, count):
        self.assertEqual(len(answer["ids"]), count)
        self.assertEqual(answer["usage"]["prompt_tokens"], len(PROMPT))
        self.assertEqual(answer["usage"]["completion_tokens"], count)
        self.assertEqual(fair_part(answer), {name: values[:count] for name, values in
                                             fair_part(self.long_answer).items()})

    def refused(self, parts, tokens, *options, daemon=None):
        done = (daemon or self.daemon).ctl("run", "--ids", "-", *options, input=ids(tokens).encode())
        complaint = done.stderr.decode()
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, b"")
        for part in parts:
            self.assertIn(part, complaint)

    def test_an_answer_that_fills_the_context_ends_and_says_so(self):
        answer = self.ask(PROMPT)
        self.assertEqual(answer["finish_reason"], "context")
        self.begins_the_long_answer(answer, SHORT - len(PROMPT))

    def test_an_answer_that_reaches_its_own_limit_says_so(self):
        for count in (1, 5, SHORT - len(PROMPT)):
            answer = self.ask(PROMPT, "--max-tokens", str(count))
            self.assertEqual(answer["finish_reason"], "length")
            self.begins_the_long_answer(answer, count)

    def test_the_terminal_is_told_why_an_answer_was_cut(self):
        for options, part in (([], "context is full"), (["--max-tokens", "3"], "cut at 3 tokens")):
            done = self.daemon.ctl("run", "--ids", ids(PROMPT), *FORBID_THE_END, *options)
            self.assertEqual(done.returncode, 0)
            self.assertIn(part, done.stderr.decode())

    def test_the_last_place_of_the_context_can_be_used(self):
        full = [3 + i for i in range(SHORT - 1)]
        answer = self.ask(full)
        self.assertEqual((len(answer["ids"]), answer["finish_reason"]), (1, "context"))
        self.assertEqual(answer["usage"]["prompt_tokens"], SHORT - 1)

    def test_more_than_the_context_is_refused_with_both_figures(self):
        self.refused(["65", "64 prompt", "64 tokens", "longer context"], [5] * SHORT)
        self.refused(["65", "50 prompt", "15 to generate", "64 tokens"], PROMPT, "--max-tokens", "15")
        self.refused(["4,000,000,050", "64 tokens"], PROMPT, "--max-tokens", "4000000000")
        self.refused(["300", "64"], [5] * 300)

    def test_more_than_the_pool_is_refused_with_its_figure(self):
        with harness.Daemon("--set", "memory.pool=1 MiB",
                            model=os.path.join(self.folder, "context-1024.gguf")) as small:
            longest = 16 * small.status()["pages"]["total"]
            self.assertLess(longest, 1024)
            self.refused(["%d tokens" % longest, "[memory] pool"], [5] * longest, daemon=small)
            self.refused(["%d tokens" % longest, "[memory] pool"], PROMPT, "--max-tokens", str(longest - 49),
                         daemon=small)
            # What fits just so is computed to its end, and ends as an answer that fills the context does.
            answer = self.ask(PROMPT, daemon=small)
            self.assertEqual(answer["finish_reason"], "context")
            self.assertEqual(len(answer["ids"]), longest - len(PROMPT))
            common = min(len(answer["ids"]), len(self.long_answer["ids"]))
            self.assertEqual(answer["ids"][:common], self.long_answer["ids"][:common])

    def test_a_refusal_does_not_disturb_those_who_run(self):
        running = [self.daemon.start_ctl("run", "--json", "--ids", ids(PROMPT), "--logprobs", "3", *FORBID_THE_END)
                   for _ in range(3)]
        for _ in range(3):
            self.refused(["64 tokens"], [5] * SHORT)
        for process in running:
            out, complaint = process.communicate(timeout=harness.PATIENCE_S)
            self.assertEqual(process.returncode, 0, complaint)
            self.begins_the_long_answer(harness.json.loads(out), SHORT - len(PROMPT))


harness.main()
