"""Every sampling option through the daemon, against a sampler written here over the model's own logits.

The answers come from the daemon; the logits under each of their tokens from `inferd-bench perplexity`
over the same ids. What follows from logits, options and seed is computed here by other means than the
daemon's: in double precision, with every token sorted, and with Philox written out again.
"""

import array
import heapq
import json
import math
import os
import struct
import subprocess

import harness

PROMPT = ("The old lighthouse stood on a cliff above the sea, and every night its keeper would climb the "
          "long stairs to light the lamp, and every")
# What invites to say a word again, so that penalties show.
REPEATING = "I like tea and you like tea, but she likes coffee and he likes milk. I"
PROMPT_TOKENS = 15
ANSWER_TOKENS = 13
# The model's own ends, kept from these answers so that all have one length.
ENDS = {0: float("-inf"), 2: float("-inf")}
# Draws this near to a border between two tokens may fall to either side: the daemon computes in f32.
BORDER = 1e-5


def philox(counter, key):
    """Philox4x32-10, from Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3"."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def uniform(seed, position):
    bits = philox([position & 0xFFFFFFFF, position >> 32, 0, 0], [seed & 0xFFFFFFFF, seed >> 32])
    return ((bits[0] << 32 | bits[1]) >> 11) / 2 ** 53


def likeliest(values, count):
    """The ids of the highest values, highest first; of equal ones the lowest id first."""
    return heapq.nlargest(count, range(len(values)), key=lambda token: (values[token], -token))


class Options:
    """A request's options, as inferctl takes them and as numbers."""

    temperature, top_k, top_p, min_p, seed = 0, 0, 1, 0, 0
    repetition_penalty, presence_penalty, frequency_penalty, penalty_last_n = 1, 0, 0, 64

    def __init__(self, biases=(), **options):
        self.biases = {**ENDS, **dict(biases)}
        self.options = options
        for name, value in options.items():
            assert hasattr(Options, name), name
            setattr(self, name, value)

    def arguments(self):
        words = []
        for name, value in self.options.items():
            words += ["--" + name.replace("_", "-"), repr(value)]
        for token, bias in self.biases.items():
            words += ["--logit-bias", "%d=%r" % (token, bias)]
        return words

    def adjusted(self, logits, history):
        values = list(logits)
        for token, bias in self.biases.items():
            values[token] += bias
        window = history[-self.penalty_last_n:] if self.penalty_last_n else []
        for token in set(window):
            value = values[token]
            value = value / self.repetition_penalty if value > 0 else value * self.repetition_penalty
            values[token] = value - window.count(token) * self.frequency_penalty - self.presence_penalty
        return values

    def kept(self, values):
        """Tokens that may be drawn, with their weights, in the order of their ids."""
        best = max(values)
        weights = [math.exp((value - best) / self.temperature) for value in values]
        order = sorted(likeliest(values, self.top_k)) if self.top_k else range(len(values))
        if self.top_p < 1:
            wanted = self.top_p * math.fsum(weights[token] for token in order)
            mass, nucleus = 0, []
            # Enough to hold any nucleus of these tests; the last line would notice if it were not.
            for token in likeliest(values, self.top_k or 4000):
                if nucleus and mass >= wanted:
                    break
                mass += weights[token]
                nucleus.append(token)
            assert mass >= wanted * (1 - 1e-12)
            order = sorted(nucleus)
        return [(token, weights[token]) for token in order if weights[token] >= self.min_p]

    def allowed(self, logits, history):
        """The tokens that are right next: one, or two where the draw falls on their border."""
        values = self.adjusted(logits, history)
        if self.temperature == 0:
            best = max(values)
            return {token for token, value in enumerate(values) if best - value <= BORDER}
        kept = self.kept(values)
        mass = sum(weight for _, weight in kept)
        target = uniform(self.seed, len(history))
        allowed, passed = set(), 0
        for token, weight in kept:
            passed += weight / mass
            if passed > target - BORDER:
                allowed.add(token)
            if passed > target + BORDER:
                break
        return allowed


def cases(common):
    """`common`: a token that the greedy answer has."""
    return {
        "greedy": Options(),
        "temperature": Options(temperature=1.0, seed=3),
        "hot": Options(temperature=1.7, seed=(5 << 40) + 9),
        "top-k": Options(temperature=1.5, top_k=7, seed=4),
        "top-k of one": Options(temperature=5.0, top_k=1, seed=4),
        "top-p": Options(temperature=1.2, top_p=0.7, seed=5),
        "top-p of one": Options(temperature=3.0, top_p=0.0001, seed=5),
        "min-p": Options(temperature=1.3, min_p=0.08, seed=6),
        "all of them": Options(temperature=1.4, top_k=40, top_p=0.9, min_p=0.03, seed=7),
        "repetition penalty": Options(repetition_penalty=1.4),
        "presence penalty": Options(presence_penalty=3.5),
        "frequency penalty": Options(frequency_penalty=3.0),
        "penalties of a short window": Options(presence_penalty=8.0, repetition_penalty=1.5, penalty_last_n=10),
        "penalties that are off": Options(presence_penalty=4.0, frequency_penalty=2.0, penalty_last_n=0),
        "penalties and a draw": Options(temperature=0.9, top_p=0.95, frequency_penalty=0.6, seed=8),
        "a favoured token": Options(biases={common: 15.0}),
        "a forbidden token": Options(biases={common: float("-inf")}),
        "biases and a draw": Options(biases={common: -2.5, 28: 1.5}, temperature=1.1, min_p=0.02, seed=10),
    }


class Sampling(harness.DaemonTest):
    def ids_of(self, text):
        return json.loads(self.daemon.ctl("tokenize", "--json", input=text.encode()).stdout)["ids"]

    def logits_of(self, sequences):
        """For each sequence of ids, the logits under each token of its answer: [answer tokens][vocabulary]."""
        tokens = PROMPT_TOKENS + ANSWER_TOKENS
        ids_path = os.path.join(self.daemon.folder, "ids")
        npy_path = os.path.join(self.daemon.folder, "logits.npy")
        with open(ids_path, "w") as file:
            file.write(" ".join(str(token) for sequence in sequences for token in sequence))
        subprocess.run([harness.binary("inferd-bench"), "perplexity", "--model", harness.model_path(), "--ids", ids_path,
                        "--ctx", str(tokens), "--logits", npy_path, "--json"],
                       check=True, capture_output=True, timeout=harness.PATIENCE_S)
        with open(npy_path, "rb") as file:
            self.assertEqual(file.read(8), b"\x93NUMPY\x01\x00")
            header = file.read(struct.unpack("<H", file.read(2))[0]).decode()
            self.assertIn("'descr': '<f4'", header)
            rows, width = eval(header)["shape"]  # noqa: a dictionary of literals, as the format says
            self.assertEqual(rows, len(sequences) * ANSWER_TOKENS)
            result = []
            for _ in sequences:
                result.append([])
                for _ in range(ANSWER_TOKENS):
                    result[-1].append(array.array("f", file.read(4 * width)))
        return result

    def test_every_option_does_what_its_definition_says(self):
        prompt = self.ids_of(REPEATING)[-PROMPT_TOKENS:]
        self.assertEqual(len(prompt), PROMPT_TOKENS)

        def ask(options, *more):
            answer = self.daemon.answer("--ids", ",".join(map(str, prompt)), "--max-tokens", str(ANSWER_TOKENS),
                                        "--logprobs", "20", *options.arguments(), *more)
            self.assertEqual(len(answer["ids"]), ANSWER_TOKENS, answer["text"])
            return answer

        greedy = ask(Options())["ids"]
        asked = cases(max(greedy, key=greedy.count))
        answers = {name: ask(options) for name, options in asked.items()}
        logits = self.logits_of([prompt + answer["ids"] for answer in answers.values()])
        for (name, answer), rows in zip(answers.items(), logits):
            with self.subTest(name):
                self.check_choices(asked[name], prompt, answer, rows)
                if name in ("greedy", "all of them", "a forbidden token"):
                    self.check_logprobs(answer, rows)
        # Options that change nothing would pass all of that.
        same = {name for name, answer in answers.items() if answer["ids"] == greedy}
        self.assertEqual(same, {"greedy", "top-k of one", "top-p of one", "penalties that are off"})

    def check_choices(self, options, prompt, answer, rows):
        history = list(prompt)
        for token, row in zip(answer["ids"], rows):
            self.assertIn(token, options.allowed(row, history), "at position %d" % len(history))
            history.append(token)

    def check_logprobs(self, answer, rows):
        """They are of the model's own distribution, whatever the options."""
        for token, entry, row in zip(answer["ids"], answer["logprobs"], rows):
            best = max(row)
            log_sum = best + math.log(math.fsum(math.exp(value - best) for value in row))
            self.assertEqual(entry["id"], token)
            self.assertAlmostEqual(entry["logprob"], row[token] - log_sum, delta=1e-5)
            likely = likeliest(row, 20)
            self.assertEqual([other["id"] for other in entry["top"]], likely)
            for other in entry["top"]:
                self.assertAlmostEqual(other["logprob"], row[other["id"]] - log_sum, delta=1e-5)

    def test_as_many_alternatives_as_asked_for(self):
        for count in (0, 1, 5, 20):
            answer = self.daemon.answer("--raw", "--max-tokens", "3", "--logprobs", str(count), "--", PROMPT)
            self.assertEqual([len(entry["top"]) for entry in answer["logprobs"]], [count] * 3)
        answer = self.daemon.answer("--raw", "--max-tokens", "3", "--", PROMPT)
        self.assertIsNone(answer["logprobs"])

    def test_max_tokens_is_exact(self):
        longest = self.daemon.answer("--raw", "--max-tokens", "20", "--", PROMPT)["ids"]
        for count in (1, 2, 7, 20):
            answer = self.daemon.answer("--raw", "--max-tokens", str(count), "--", PROMPT)
            self.assertEqual(answer["ids"], longest[:count])
            self.assertEqual(answer["finish_reason"], "length")
            self.assertEqual(answer["usage"]["completion_tokens"], count)

    def test_stop_strings_end_the_answer_before_them(self):
        request = ["--raw", "--max-tokens", "40", "--", PROMPT]
        whole = self.daemon.answer(*request)
        text = whole["text"]
        # Within a token, at its border, across tokens, the very first character, and the last ones.
        for begin, length in ((9, 1), (12, 3), (20, 15), (0, 1), (len(text) - 3, 3)):
            stop = text[begin:begin + length]
            at = text.index(stop)
            answer = self.daemon.answer("--stop", stop, "--stop", "never to be seen", *request)
            self.assertEqual(answer["text"], text[:at], repr(stop))
            self.assertEqual(answer["finish_reason"], "stop")
            self.assertEqual(answer["ids"], whole["ids"][:len(answer["ids"])])
            self.assertEqual(answer["usage"]["completion_tokens"], len(answer["ids"]))
        # The one that comes first wins, not the one that was named first.
        first, second = text[10:14], text[25:29]
        answer = self.daemon.answer("--stop", second, "--stop", first, *request)
        self.assertEqual(answer["text"], text[:min(text.index(first), text.index(second))])
        answer = self.daemon.answer("--stop", "never to be seen", *request)
        self.assertEqual((answer["text"], answer["finish_reason"]), (text, "length"))


harness.main()
