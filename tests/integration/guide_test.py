"""The recipes of docs/GUIDE.md: its programs are the files, and each does what it says."""

import os
import re
import subprocess
import sys
import threading
import unittest

import harness

GUIDE = os.path.join(harness.SOURCE, "client_lib/examples/guide")
LIBRARY_DIR = os.path.join(os.path.dirname(harness.BIN.rstrip("/")), "lib")


def recipes():
    """Of the guide: path of the file, its language, the program as it stands there."""
    with open(os.path.join(harness.SOURCE, "docs/GUIDE.md"), encoding="utf-8") as file:
        return re.findall(r"^`(client_lib/examples/guide/[\w.]+)`:\n\n```(\w+)\n(.*?)^```$", file.read(), re.M | re.S)


def environment_of(daemon):
    """In which recipes find the daemon, the library and the Python package."""
    return dict(daemon.environment(), LD_LIBRARY_PATH=LIBRARY_DIR, PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1",
                PYTHONPATH=os.path.join(harness.SOURCE, "client_lib/python"))


class Text(unittest.TestCase):
    def test_its_programs_are_the_files(self):
        found = recipes()
        self.assertEqual(len(found), 11)
        for path, language, program in found:
            with open(os.path.join(harness.SOURCE, path), encoding="utf-8") as file:
                self.assertEqual(program, file.read(), path)
            self.assertEqual(language, {"c": "c", "cpp": "cpp", "py": "python"}[path.rsplit(".")[-1]])
        self.assertEqual({language for _, language, _ in found}, {"c", "cpp", "python"})
        files = sorted("client_lib/examples/guide/" + name for name in os.listdir(GUIDE) if name != "__pycache__")
        self.assertEqual(sorted(path for path, _, _ in found), files)


class Recipes(harness.DaemonTest):
    def command(self, name):
        if name.endswith(".py"):
            return [sys.executable, os.path.join(GUIDE, name)]
        return [harness.binary("guide-" + name.rsplit(".")[0].replace("_", "-"))]

    def environment(self):
        return environment_of(self.daemon)

    def run_recipe(self, name):
        """What it prints; it must succeed."""
        done = subprocess.run(self.command(name), capture_output=True, text=True, env=self.environment(),
                              timeout=harness.PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.errors = done.stderr
        return done.stdout

    def test_first_answer(self):
        self.assertEqual(self.run_recipe("first_answer.c"),
                         self.daemon.answer("--raw", "--max-tokens", "12", "The capital of France is")["text"] + "\n")

    def test_chat_turns(self):
        lines = self.run_recipe("chat_turns.py").splitlines()
        (cached, prompt), = re.findall(r"cached: (\d+) of (\d+)", lines[-1])
        self.assertGreater(int(cached), int(prompt) // 2)

    def test_token_ids(self):
        ids = self.daemon.ctl("tokenize", "--json", input=b"One, two, three,").stdout.decode()
        ids = ",".join(re.findall(r"\d+", ids.split("[", 1)[1].split("]")[0]))
        expected = self.daemon.answer("--ids", ids, "--max-tokens", "6")["ids"]
        self.assertEqual(self.run_recipe("token_ids.c").split(), list(map(str, expected)))

    def test_alternatives(self):
        # A token may be a line's end.
        tokens = re.findall(r"^ *[\d.]+ %: '.+?' '.+?' '.+?'$", self.run_recipe("alternatives.cpp"), re.M | re.S)
        self.assertEqual(len(tokens), 5)

    def test_several_samples(self):
        lines = self.run_recipe("several_samples.py").splitlines()
        self.assertEqual(sum(int(line.split()[0]) for line in lines[:-1]), 8)
        self.assertLess(int(re.search(r"\d+", lines[-1])[0]), 8 * 30)

    def test_two_endings(self):
        endings = self.run_recipe("two_endings.cpp").split("\n----\n")[:-1]
        self.assertEqual(len(endings), 2)
        beginning = os.path.commonprefix(endings)
        self.assertTrue(beginning.endswith("\n\nThen "))
        self.assertGreater(int(self.errors.split()[0]), 20)

    def test_likelier(self):
        lines = self.run_recipe("likelier.py").splitlines()
        self.assertEqual([line.split()[1] for line in lines], ["Jupiter", "Mars", "Vienna"])

    def test_background_work(self):
        self.assertGreater(len(self.run_recipe("background_work.cpp")), 5)
        self.assertRegex(self.errors, r"^waited [\d.e+-]+ ms")

    def test_many_at_once(self):
        lines = self.run_recipe("many_at_once.py").splitlines()
        questions = [line.split(".")[0] for line in lines if line.startswith("Name a ")]
        self.assertEqual(questions, ["Name a river", "Name a lake", "Name a mountain"])

    def test_pinned_preamble(self):
        self.assertGreater(len(self.run_recipe("pinned_preamble.cpp")), 1)
        pinned, cached = map(int, re.findall(r"^(\d+) tokens (?:are pinned|were there already)$", self.errors, re.M))
        self.assertGreater(pinned, 32)
        self.assertGreaterEqual(cached, pinned)
        self.assertIn(b"0 pages", self.daemon.ctl("cache", "unpin").stdout)

    def test_each_says_in_a_sentence_that_nobody_is_there(self):
        for path, _, _ in recipes():
            name = os.path.basename(path)
            environment = dict(self.environment(), INFERD_SOCKET="/nowhere/inferd.sock")
            done = subprocess.run(self.command(name), capture_output=True, text=True, env=environment, timeout=60)
            self.assertEqual(done.returncode, 1, name)
            self.assertIn("/nowhere/inferd.sock", done.stderr, name)


class Restart(unittest.TestCase):
    def test_survive_restart(self):
        with harness.Daemon() as daemon:
            expected = daemon.answer("--max-tokens", "60", "Tell me about the moon.")["text"]
            recipe = subprocess.Popen([sys.executable, os.path.join(GUIDE, "survive_restart.py")], text=True,
                                      env=environment_of(daemon), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            guard = threading.Timer(harness.PATIENCE_S, recipe.kill)
            guard.start()
            begun = recipe.stdout.read(20)
            daemon.process.kill()
            daemon.process.wait()
            daemon.start()
            with recipe:
                rest, errors = recipe.stdout.read(), recipe.stderr.read()
            guard.cancel()
            self.assertEqual(recipe.returncode, 0, errors)
            self.assertEqual(begun + rest, expected + "\n")


if __name__ == "__main__":
    harness.main()
