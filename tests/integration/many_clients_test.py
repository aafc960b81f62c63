"""32 client processes, prompts of one token to several thousand: ids and log probabilities are those of each alone.

On a small model with random weights, so that it takes seconds; others come, are cancelled or killed meanwhile.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile

import harness

LENGTHS = [1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 129, 200, 255, 256, 257, 320, 400,
           511, 512, 513, 769, 1025, 1600, 2500, 4000]
VOCABULARY = 512
FORBID_THE_END = [word for token in (0, 1, 2) for word in ("--logit-bias", "%d=-inf" % token)]
WAYS = [[], ["--temperature", "0.9", "--seed", "5"], [],
        ["--temperature", "1.2", "--top-k", "40", "--top-p", "0.9", "--seed", "6"], [],
        ["--temperature", "0.7", "--min-p", "0.05", "--seed", "7", "--repetition-penalty", "1.2"]]


def requests():
    """Command lines and what each reads from its standard input."""
    generator = random.Random(1)
    made = []
    for index, length in enumerate(LENGTHS):
        tokens = [generator.randrange(VOCABULARY) for _ in range(length)]
        made.append((["--max-tokens", str(12 + index % 5), *FORBID_THE_END, *WAYS[index % len(WAYS)]],
                     " ".join(map(str, tokens)).encode()))
    return made


def essence(answer):
    return {name: answer[name] for name in ("ids", "text", "finish_reason", "logprobs")}


class ManyClients(harness.DaemonTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="inferd-many-")
        cls.model = os.path.join(cls.folder, "random.gguf")
        subprocess.run([harness.binary("inferd-bench"), "make-model", "--output", cls.model, "--type", "q4_1",
                        "--context", "8192", "--embedding", "128", "--heads", "6", "--kv-heads", "2", "--head-dim", "32",
                        "--feed-forward", "192", "--vocabulary", str(VOCABULARY)], check=True, stdout=subprocess.DEVNULL)
        cls.daemon = harness.Daemon(model=cls.model)
        cls.alone = [essence(cls.daemon.answer("--logprobs", "4", "--ids", "-", *options, input=prompt))
                     for options, prompt in requests()]

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        shutil.rmtree(cls.folder)

    def start(self, daemon, options, prompt):
        process = daemon.start_ctl("run", "--json", "--logprobs", "4", "--ids", "-", *options, stdin=subprocess.PIPE)
        process.stdin.write(prompt)
        process.stdin.close()
        process.stdin = None  # communicate() would flush it
        return process

    def together(self, daemon, order, disturb=False):
        """All at once, in this order, and with `disturb` beside others that are killed or cancelled."""
        all_requests = requests()
        running, others = {}, []
        for place, index in enumerate(order):
            running[index] = self.start(daemon, *all_requests[index])
            if disturb and place % 4 == 0:
                others.append(self.start(daemon, ["--max-tokens", "4000", *FORBID_THE_END],
                                         all_requests[-1 - place % 3][1]))
                if len(others) > 1:
                    others[-2].send_signal(signal.SIGKILL if place % 8 == 0 else signal.SIGINT)
        for process in others:
            process.send_signal(signal.SIGINT)
        for index, process in running.items():
            out, complaint = process.communicate(timeout=harness.PATIENCE_S)
            self.assertEqual(process.returncode, 0, complaint)
            with self.subTest(prompt_tokens=LENGTHS[index]):
                self.assertEqual(essence(json.loads(out)), self.alone[index])
        for process in others:
            process.communicate(timeout=harness.PATIENCE_S)

    def test_together_each_gets_what_it_gets_alone(self):
        self.together(self.daemon, range(len(LENGTHS)))

    def test_others_that_are_killed_or_cancelled_change_nothing(self):
        self.together(self.daemon, reversed(range(len(LENGTHS))), disturb=True)

    def test_chunks_threads_and_a_pool_for_a_few_change_nothing(self):
        # The pool of the last holds the longest prompt and little more: the others wait for pages, or let go of theirs.
        for options in (["scheduler.step_tokens=8", "scheduler.max_sequences=8", "cpu.threads=1"],
                        ["scheduler.step_tokens=64", "cpu.threads=2"],
                        ["memory.pool=4 MiB", "cpu.threads=2"]):
            settings = [word for option in options for word in ("--set", option)]
            with self.subTest(options=options), harness.Daemon(*settings, model=self.model) as daemon:
                self.together(daemon, random.Random(2).sample(range(len(LENGTHS)), len(LENGTHS)))


harness.main()
