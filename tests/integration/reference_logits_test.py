"""The sample model's logits over a text of ours are those of the reference kept in tests/golden.

tests/golden/logits_smollm2_q4_1.json was made by tests/golden/logits/reference_logits.py: the same weights,
dequantized to f32, run by transformers. What is left between the two is the rounding of activations to
8 bits that quantized kernels need. llama.cpp shows a mean KL of 0.0029 and the same top token at 96.5 %
of 2,295 positions of the GPL with this model; the bounds leave room for this text's fewer positions.
"""

import array
import json
import math
import os
import subprocess
import tempfile
import unittest

import harness

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def read_rows(path):
    """Rows of a NumPy file of f32 as arrays."""
    with open(path, "rb") as file:
        start = file.read(10)
        assert start[:8] == b"\x93NUMPY\x01\x00", start
        header = file.read(int.from_bytes(start[8:10], "little")).decode()
        assert "'descr': '<f4'" in header and "'fortran_order': False" in header, header
        shape = header.split("'shape': (")[1].split(")")[0].split(",")
        rows, columns = int(shape[0]), int(shape[1])
        for _ in range(rows):
            row = array.array("f")
            row.fromfile(file, columns)
            yield row
        assert not file.read(1), "more rows than the header says"


class ReferenceLogits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(os.path.join(harness.SOURCE, "tests/golden/logits_smollm2_q4_1.json")) as file:
            cls.golden = json.load(file)
        cls.folder = tempfile.TemporaryDirectory()
        cls.ids_path = os.path.join(cls.folder.name, "ids")
        with open(cls.ids_path, "w") as file:
            file.write(" ".join(map(str, cls.golden["ids"])))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def perplexity(self, *options):
        command = [harness.binary("inferd-bench"), "perplexity", "--model", harness.model_path(),
                   "--ctx", str(len(self.golden["ids"])), "--json", *options]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    def test_logits_are_those_of_the_reference(self):
        if os.path.basename(harness.model_path()) != MODEL:
            self.fail("this test knows only " + MODEL)
        path = os.path.join(self.folder.name, "logits.npy")
        score = self.perplexity("--ids", self.ids_path, "--logits", path)
        first = len(self.golden["ids"]) // 2
        nll = self.golden["nll"][first:]
        self.assertEqual(score["positions"], len(nll))
        reference = math.exp(sum(nll) / len(nll))
        self.assertLess(abs(score["perplexity"] / reference - 1), 0.02)
        same, errors, divergence = 0, [], []
        for place, row in enumerate(read_rows(path), first):
            ids = self.golden["top_ids"][place]
            wanted = self.golden["top_logprobs"][place]
            highest = max(row)
            same += row[ids[0]] == highest
            norm = highest + math.log(math.fsum(math.exp(value - highest) for value in row))
            ours = [row[id] - norm for id in ids]
            errors += [abs(a - b) for a, b in zip(ours, wanted)]
            # KL over the eight likeliest and the rest as one.
            rest, rest_ours = (max(1 - sum(map(math.exp, v)), 1e-9) for v in (wanted, ours))
            terms = sum(math.exp(b) * (b - a) for a, b in zip(ours, wanted))
            divergence.append(terms + rest * math.log(rest / rest_ours))
        self.assertEqual(len(divergence), len(nll))
        print("same top token %.4f, mean error of log probabilities %.4f, mean KL %.5f" %
              (same / len(nll), sum(errors) / len(errors), sum(divergence) / len(divergence)))
        self.assertGreater(same / len(nll), 0.95)
        self.assertLess(sum(divergence) / len(divergence), 0.004)
        self.assertLess(sum(errors) / len(errors), 0.12)

    def test_the_text_becomes_the_references_tokens(self):
        with open(os.path.join(harness.SOURCE, "tests/golden/logits_text.txt"), "rb") as file:
            text = file.read()
        # The command leaves out a text's last newline, which is a token of the reference's.
        path = os.path.join(self.folder.name, "text.txt")
        with open(path, "wb") as file:
            file.write(text + b"\n")
        whole = self.perplexity("--text", path)
        ids = self.perplexity("--ids", self.ids_path)
        self.assertEqual(whole, ids)


if __name__ == "__main__":
    harness.main()
