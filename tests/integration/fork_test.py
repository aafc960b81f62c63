"""A forked sequence answers as its tokens alone would be answered, and costs only what it has of its own."""

import json
import subprocess

import harness


class Fork(harness.DaemonTest):
    @classmethod
    def setUpClass(cls):
        cls.model = cls.enterClassContext(harness.tiny_model())
        cls.daemon = harness.Daemon("--set", "scheduler.max_sequences=24", model=cls.model)

    def fork(self, prompt, read, forks, most, *options):
        """[(cached tokens, ids before, answer)], the parent first."""
        client = subprocess.Popen(
            [harness.binary("inferd-test-fork"), self.daemon.socket, *map(str, (prompt, read, forks, most)), *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.assertEqual(client.stdout.readline(), "forked\n")
        out, _ = client.communicate("\n", timeout=harness.PATIENCE_S)
        self.assertEqual(client.returncode, 0)
        branches = []
        for line in out.splitlines():
            before, after = line.split(" |")
            cached, *ids = map(int, before.split())
            branches.append((cached, ids, [int(word) for word in after.split()]))
        self.assertEqual(len(branches), forks + 1)
        return branches

    def alone(self, ids, most):
        """Greedy tokens of the same ids on a daemon that has nothing cached."""
        done = self.plain.ctl("run", "--json", "--ids", ",".join(map(str, ids)), "--max-tokens", str(most))
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["ids"]

    def test_forks_answer_as_their_tokens_alone_would_be(self):
        with harness.Daemon("--set", "memory.prefix_cache=false", model=self.model) as self.plain:
            for options in ((), ("no-store",)):
                branches = self.fork(50, 9, 5, 40, *options)
                for number, (cached, before, answer) in enumerate(branches):
                    wanted = self.alone(before, 40)
                    # The model may end its answer there, where the forks were told to go on.
                    self.assertGreater(len(wanted), 0)
                    self.assertEqual(answer[:len(wanted)], wanted, (options, number))
                    self.assertEqual(len(answer), 40)
                    if number > 0 and options:
                        self.assertIn(cached, (0, *range(50, 60)), "nothing but the parent's was there to share")

    def test_sixteen_forks_share_what_they_have_in_common(self):
        before = self.daemon.status()["tokens"]
        branches = self.fork(3000, 20, 16, 60, "no-store")
        after = self.daemon.status()["tokens"]
        prompts = sum(len(ids) for _, ids, _ in branches)
        self.assertEqual(after["prompt"] - before["prompt"], prompts)
        # At most a parent that had ended before they came computes again.
        shared = [cached for cached, _, _ in branches[1:]]
        computed = after["computed"] - before["computed"]
        self.assertEqual(computed + sum(shared), prompts + after["generated"] - before["generated"] - len(branches))

    def test_several_answers_are_drawn_apart_and_the_prompt_computed_once(self):
        prompt = ",".join(str(4 + i * 11 % 300) for i in range(500))
        before = self.daemon.status()["tokens"]
        request = ["--ids", prompt, "--temperature", "1.5", "--seed", "4", "--max-tokens", "20"]
        done = self.daemon.ctl("run", "--json", "--n", "5", *request)
        self.assertEqual(done.returncode, 0, done.stderr)
        answers = json.loads(done.stdout)
        self.assertEqual(len(answers), 5)
        self.assertEqual(len({tuple(answer["ids"]) for answer in answers}), 5)
        self.assertEqual([answer["usage"]["cached_tokens"] for answer in answers], [0, 499, 499, 499, 499])
        self.assertEqual(answers[0]["ids"], self.daemon.answer(*request)["ids"], "branch 0 is what one answer is")
        again = json.loads(self.daemon.ctl("run", "--json", "--n", "5", *request).stdout)
        self.assertEqual([answer["ids"] for answer in again], [answer["ids"] for answer in answers])
        text = self.daemon.ctl("run", "--n", "2", *request)
        self.assertIn(b"[2 of 2]\n", text.stdout)
        self.assertGreater(self.daemon.status()["tokens"]["cached"], before["cached"])

    def test_the_number_of_answers_is_checked(self):
        for wrong in ("0", "129", "many"):
            self.assertEqual(self.daemon.ctl("run", "--n", wrong, "--ids", "1").returncode, 2)


if __name__ == "__main__":
    harness.main()
