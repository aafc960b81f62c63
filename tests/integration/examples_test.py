"""The example programs, run against a daemon: they say what inferctl says."""

import json
import os
import re
import subprocess

import harness

FIRST = "What is the capital of Italy? Answer with one word."
SECOND = "Now say it in \"quotes\", with a \\ behind\tthem."


def run_examples(test, daemon, binary):
    """Runs all of them as `binary` finds them, and compares; the installed package's test does it too."""

    def example(name, *arguments, code=0, **options):
        done = subprocess.run([binary(name), *arguments], capture_output=True, env=daemon.environment(),
                              timeout=harness.PATIENCE_S, **options)
        test.assertEqual(done.returncode, code, done.stderr)
        return done

    def answer(prompt, max_tokens):
        return daemon.answer("--raw", "--max-tokens", str(max_tokens), "--", prompt)

    # In C: one prompt, one answer, its figures.
    done = example("example-one-shot", "Once upon a time")
    expected = answer("Once upon a time", 32)
    test.assertEqual(done.stdout.decode(), expected["text"] + "\n")
    test.assertRegex(done.stderr.decode(), r"^%d prompt tokens \(\d+ cached\), 32 generated, first after [0-9.]+ ms$" %
                     expected["usage"]["prompt_tokens"])

    # In C: several answers side by side in one event loop.
    prompts = ["The capital of France is", "1, 2, 3, 4,", "def main():"]
    texts = texts_by_index(example("example-many", *prompts).stdout)
    for index, prompt in enumerate(prompts):
        expected = answer(prompt, 16)
        test.assertEqual(texts[index][-1], "[%s]" % expected["finish_reason"])
        test.assertEqual("".join(texts[index][:-1]), expected["text"])

    # In C++ with Asio: a coroutine for each. Not with every compiler.
    if binary("example-side-by-side"):
        check_side_by_side(test, example, prompts, answer)

    # In C++: a conversation of two questions.
    done = example("example-chat", input="%s\n%s\n".encode() % (FIRST.encode(), SECOND.encode()))
    chat = daemon.ctl("chat", "--max-tokens", "64", input="%s\n%s\n".encode() % (FIRST.encode(), SECOND.encode()))
    test.assertEqual(chat.returncode, 0, chat.stderr)
    test.assertEqual(done.stdout, chat.stdout)
    test.assertIn(b"Rome", done.stdout)
    test.assertIn(b"talking to", done.stderr)

    # In C++: several answers to one prompt, each a fork of the first.
    drawn = ["--temperature", "0.8", "--raw", "--max-tokens", "16", "--json", "--n", "3", "--", "My favourite colour is"]
    expected = json.loads(daemon.ctl("run", *drawn).stdout)
    test.assertEqual(len({answer["text"] for answer in expected}), 3)
    test.assertEqual(example("example-samples", "3", "My favourite colour is").stdout.decode(),
                     "".join("%d: %s\n" % (i, answer["text"]) for i, answer in enumerate(expected)))

    # What cannot work says why.
    test.assertIn(b"usage:", example("example-one-shot", code=2).stderr)
    long = example("example-one-shot", "a b c d " * 12000, code=1)
    test.assertIn(b"example-one-shot: ", long.stderr)
    nowhere = dict(daemon.environment(), INFERD_SOCKET="/nowhere/inferd.sock")
    for name, argument in (("example-one-shot", "x"), ("example-many", "x"), ("example-chat", None), ("example-samples", "2")):
        arguments = [argument] if argument else []
        if name == "example-samples":
            arguments.append("x")
        done = subprocess.run([binary(name)] + arguments, env=nowhere, input=b"x\n",
                              capture_output=True)
        test.assertEqual(done.returncode, 1)
        test.assertIn(b"/nowhere/inferd.sock", done.stderr)


def texts_by_index(output):
    """Of "0: text" lines: the pieces of each index, in order."""
    pieces = re.split(r"^(\d): ", output.decode(), flags=re.MULTILINE)[1:]
    texts = {}
    for index, piece in zip(pieces[::2], pieces[1::2]):
        texts.setdefault(int(index), []).append(piece[:-1])
    return texts


def check_side_by_side(test, example, prompts, answer):
    texts = texts_by_index(example("example-side-by-side", "600", *prompts).stdout)
    for index, prompt in enumerate(prompts):
        expected = answer(prompt, 16)
        test.assertEqual(texts[index][-1], "[%s]" % expected["finish_reason"])
        test.assertEqual("".join(texts[index][:-1]), expected["text"])
    # Out of time at once.
    texts = texts_by_index(example("example-side-by-side", "0", *prompts).stdout)
    test.assertEqual([texts[index][-1] for index in range(len(prompts))], ["[cancelled]"] * len(prompts))
    failed = example("example-side-by-side", "600", "a b c d " * 12000, code=1)
    test.assertIn(b"example-side-by-side: ", failed.stderr)


def built(name):
    """The path of an example of this build, or None if its compiler cannot build it."""
    path = os.path.join(harness.BIN, name)
    if name == "example-side-by-side" and not os.path.exists(path):
        return None
    return harness.binary(name)


class Examples(harness.DaemonTest):
    def test_they_say_what_inferctl_says(self):
        run_examples(self, self.daemon, built)


if __name__ == "__main__":
    harness.main()
