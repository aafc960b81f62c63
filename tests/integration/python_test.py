"""The Python package as its wheel installs it: in a fresh environment, against a daemon, with and without asyncio."""

import asyncio
import gc
import glob
import importlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import harness

QUESTION = "What is the capital of Italy? Answer with one word."
# Goes on until the context is full.
ENDLESS = {"ignore_eos": True, "no_store": True}

inferd = None  # imported from the wheel
FOLDER = tempfile.mkdtemp(prefix="inferd-test-")
VENV = os.path.join(FOLDER, "venv")
PYTHON = os.path.join(VENV, "bin/python")


def setUpModule():
    """Installs the wheel without network into an environment that has nothing else, and imports it from there."""
    global inferd
    unittest.addModuleCleanup(shutil.rmtree, FOLDER)
    wheels = glob.glob(os.path.join(os.path.dirname(harness.BIN.rstrip("/")), "python", "*.whl"))
    assert len(wheels) == 1, "there is not one wheel but %s; build inferd_wheel" % wheels
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    subprocess.run([PYTHON, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
                    "--no-deps", wheels[0]], check=True)
    sys.path[:0] = glob.glob(os.path.join(VENV, "lib/python*/site-packages"))
    inferd = importlib.import_module("inferd")
    assert inferd.__file__.startswith(VENV)


def tearDownModule():
    """Uninstalling leaves nothing behind: the wheel's list of its files is whole."""
    subprocess.run([PYTHON, "-I", "-m", "pip", "uninstall", "--quiet", "--yes", "inferd"], check=True)
    left = glob.glob(os.path.join(VENV, "lib/python*/site-packages/inferd*"))
    assert not left, left


def bits(value):
    return struct.pack("f", value)


def run_python(code, daemon, **options):
    """A program in the fresh environment, in a folder with nothing of ours around it."""
    environment = {"INFERD_SOCKET": daemon.socket, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    command = [PYTHON, "-W", "error::ResourceWarning", *(["-c", code] if "\n" in code else [code])]
    return subprocess.Popen(command, cwd=FOLDER, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, **options)


class WithConnection(harness.DaemonTest):
    def setUp(self):
        self.connection = inferd.connect(self.daemon.socket, client_name="python-test")
        self.addCleanup(harness.DaemonTest.tearDown, self)
        self.addCleanup(self.connection.close)

    def tearDown(self):  # DaemonTest's, once the connection is closed
        pass


class Wheel(unittest.TestCase):
    def test_the_library_comes_from_the_wheel_and_needs_the_system_only(self):
        with open("/proc/self/maps") as maps:
            loaded = {line.split()[-1] for line in maps if "libinferd" in line}
        library = os.path.join(os.path.dirname(inferd.__file__), "libinferd.so.0")
        self.assertEqual(loaded, {os.path.realpath(library)})
        dynamic = subprocess.run(["readelf", "--dynamic", library], check=True, capture_output=True, text=True).stdout
        # Where it would look for the libraries that it needs: nowhere but where the system does.
        self.assertNotRegex(dynamic, "RPATH|RUNPATH")
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\.so", dynamic))
        self.assertLessEqual(needed, {"libpcre2-8", "libstdc++", "libm", "libgcc_s", "libc", "ld-linux-x86-64"})

    def test_equal_inputs_give_equal_wheels_that_say_what_they_hold(self):
        library = os.path.join(os.path.dirname(inferd.__file__), "libinferd.so.0")
        made = []
        for name in ("one", "two"):
            path = subprocess.run(
                [sys.executable, os.path.join(harness.SOURCE, "client_lib/python/make_wheel.py"), "--version", "1.2",
                 "--library", library, "--output", os.path.join(FOLDER, name)],
                check=True, capture_output=True, text=True).stdout.strip()
            with open(path, "rb") as file:
                made.append((os.path.basename(path), file.read()))
        self.assertEqual(made[0], made[1])
        self.assertRegex(made[0][0], r"^inferd-1\.2-py3-none-linux_\w+\.whl$")


class Answers(WithConnection):
    def check(self, sequence, expected, logprobs=False):
        """A sequence says to the last bit what `inferctl run --json` says."""
        chunks = list(sequence)
        self.assertEqual([id for chunk in chunks for id in chunk.ids], expected["ids"])
        self.assertEqual(list(sequence.ids), expected["ids"])
        self.assertEqual("".join(chunk.text for chunk in chunks), expected["text"])
        self.assertEqual(sequence.text(), expected["text"])
        self.assertEqual(sequence.finish_reason, expected["finish_reason"])
        self.assertEqual([chunk.finish_reason for chunk in chunks],
                         [None] * (len(chunks) - 1) + [expected["finish_reason"]])
        self.assertEqual(sequence.usage.prompt_tokens, expected["usage"]["prompt_tokens"])
        self.assertEqual(sequence.usage.completion_tokens, len(expected["ids"]))
        self.assertGreater(sequence.usage.ttft_ms, 0)
        if not logprobs:
            self.assertEqual({(chunk.logprobs, chunk.top) for chunk in chunks}, {(None, None)})
            return
        rows = [(bits(logprob), [(id, bits(other)) for id, other in top]) for chunk in chunks
                for logprob, top in zip(chunk.logprobs, chunk.top or [()] * len(chunk.logprobs))]
        self.assertEqual(rows, [(bits(row["logprob"]), [(other["id"], bits(other["logprob"])) for other in row["top"]])
                                for row in expected["logprobs"]])

    def test_they_are_those_of_inferctl(self):
        run, answer = self.connection.run, self.daemon.answer
        self.check(run("Once upon a time", max_tokens=24, logprobs=3),
                   answer("--raw", "--max-tokens", "24", "--logprobs", "3", "Once upon a time"), logprobs=True)
        self.check(run("Once upon a time", max_tokens=4, logprobs=0),
                   answer("--raw", "--max-tokens", "4", "--logprobs", "0", "Once upon a time"), logprobs=True)
        self.check(run(messages=QUESTION), answer(QUESTION))
        self.check(run(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
                       max_tokens=10), answer("--system", "Be brief.", "--max-tokens", "10", "Hi"))
        self.check(run(ids=[504, 3575, 282], max_tokens=5), answer("--ids", "504,3575,282", "--max-tokens", "5"))
        self.check(run("Ein Gruß: 你好, ", max_tokens=12, temperature=0.9, seed=5, top_k=50, top_p=0.95, min_p=0.01),
                   answer("--raw", "--max-tokens", "12", "--temperature", "0.9", "--seed", "5", "--top-k", "50",
                          "--top-p", "0.95", "--min-p", "0.01", "Ein Gruß: 你好, "))
        self.check(run("1, 2, 3,", max_tokens=30, stop=[" 7"], nice=3, priority="batch", deadline=240),
                   answer("--raw", "--max-tokens", "30", "--stop", " 7", "1, 2, 3,"))
        self.check(run("The capital of France is", max_tokens=3, logit_bias={7042: float("-inf")}),
                   answer("--raw", "--max-tokens", "3", "--logit-bias", "7042=-inf", "The capital of France is"))

    def test_text_tools(self):
        text = "Grüße <|im_start|> 你好 🎉"
        ids = self.connection.tokenize(text)
        self.assertEqual(self.connection.detokenize(ids), text)
        special = self.connection.tokenize(text, special=True)
        self.assertIn(1, special)
        self.assertNotIn(1, ids)
        self.assertEqual(self.connection.detokenize(special, special=True), text)
        # Half of a character is bytes, and no text.
        party = self.connection.tokenize("🎉")
        self.assertEqual(b"".join(self.connection.detokenize_bytes([id]) for id in party), "🎉".encode())
        self.assertEqual(self.connection.detokenize(party[:1])[-1], "\N{REPLACEMENT CHARACTER}")
        chat = self.connection.render_chat(QUESTION)
        self.assertIn(QUESTION, self.connection.detokenize(chat))
        self.assertEqual(self.connection.run(ids=chat, max_tokens=1).usage.prompt_tokens, len(chat))
        shorter = self.connection.render_chat([{"role": "user", "content": "Hi"}],
                                              variables={"add_generation_prompt": False})
        self.assertLess(len(shorter), len(self.connection.render_chat("Hi")))
        model = self.connection.model
        self.assertEqual((model.architecture, model.vocabulary, model.eos_token), ("llama", 49152, 2))
        self.assertEqual(model.name, self.daemon.status()["models"][0])

    def test_samples_of_one_prompt_are_those_of_inferctl(self):
        expected = json.loads(self.daemon.ctl("run", "--raw", "--json", "--n", "3", "--temperature", "0.8",
                                              "--max-tokens", "12", "My favourite colour is").stdout)
        first = self.connection.run("My favourite colour is", temperature=0.8, max_tokens=12)
        samples = [first, first.fork(), first.fork()]
        self.assertEqual([sample.text() for sample in samples], [answer["text"] for answer in expected])
        self.assertEqual(len({sample.text() for sample in samples}), 3)
        # A fork goes on from what was read of its parent, with the parent's options but for those given.
        story = self.connection.run("Once upon a time", max_tokens=12)
        begun = next(story).text + next(story).text
        other = story.fork(" a dragon", max_tokens=4)
        whole = self.connection.run("Once upon a time" + begun + " a dragon", max_tokens=4)
        self.assertEqual(other.text(), whole.text())
        self.assertEqual(len(other.ids), 4)
        self.assertTrue(story.text().startswith(begun))
        self.assertEqual(len(story.ids), 12)

    def test_cancelling_and_closing_stop_the_work(self):
        sequence = self.connection.run("Once", **ENDLESS)
        for _ in range(3):
            next(sequence)
        sequence.cancel()
        sequence.text()
        self.assertEqual(sequence.finish_reason, "cancelled")
        with self.connection.run("Twice", **ENDLESS) as closed:
            read = next(closed)
        closed.close()
        self.daemon.wait_idle()
        self.assertEqual((closed.ids, closed.text_so_far), (read.ids, read.text))
        self.assertEqual(closed.usage.completion_tokens, len(read.ids))
        with self.assertRaisesRegex(inferd.InvalidArgument, "the sequence is closed"):
            next(closed)
        # Whoever refers to it no longer has no use for it.
        next(self.connection.run("Thrice", **ENDLESS))
        self.daemon.wait_idle()

    def test_errors_are_sentences(self):
        with self.assertRaisesRegex(inferd.ResourceExhausted, "tokens; the context holds 8192"):
            self.connection.run("a b c d " * 12000)
        with self.assertRaisesRegex(inferd.InvalidArgument, "token id 49152 is outside the vocabulary of 49152"):
            self.connection.run(ids=[49152])
        with self.assertRaisesRegex(inferd.InvalidArgument, "temperature must be between"):
            self.connection.run("x", temperature=1000)
        with self.assertRaisesRegex(TypeError, "no option 'max_token'"):
            self.connection.run("x", max_token=3)
        with self.assertRaisesRegex(inferd.NotFound, "no-such-model"):
            inferd.connect(self.daemon.socket, model="no-such-model")
        with self.assertRaisesRegex(inferd.NotFound, "no-such-domain"):
            inferd.connect(self.daemon.socket, cache_domain="no-such-domain")
        self.assertIsNone(self.connection.run("x", max_tokens=1).finish_reason)


class Asyncio(WithConnection):
    PROMPTS = ["The capital of France is", "1, 2, 3, 4,", "def main():", "Once upon a time"]

    def test_four_at_once_are_those_of_one_by_one(self):
        alone = [self.connection.run(prompt, max_tokens=24).text() for prompt in self.PROMPTS]
        order = []

        async def read(index, prompt):
            async for chunk in self.connection.run(prompt, max_tokens=24):
                order.append(index)
                texts[index] += chunk.text

        async def read_all():
            await asyncio.gather(*(read(index, prompt) for index, prompt in enumerate(self.PROMPTS)))
            self.assertEqual(asyncio.all_tasks(), {asyncio.current_task()})

        for _ in range(2):  # each run() of asyncio has an event loop of its own
            texts = [""] * len(self.PROMPTS)
            asyncio.run(read_all())
            self.assertEqual(texts, alone)
        self.assertLess(order.index(3), len(order) - 1 - order[::-1].index(0), "they came one after the other")

    def test_beside_threads_and_other_waits(self):
        def in_thread(index):
            texts[index] = self.connection.run(self.PROMPTS[index], max_tokens=16).text()

        async def read_all():
            waits = [asyncio.to_thread(in_thread, index) for index in range(3)]
            waits += [self.connection.run(prompt, max_tokens=16).text_async() for prompt in self.PROMPTS]
            return (await asyncio.gather(*waits))[3:]

        alone = [self.connection.run(prompt, max_tokens=16).text() for prompt in self.PROMPTS]
        texts = {}
        self.assertEqual(asyncio.run(read_all()), alone)
        self.assertEqual([texts[index] for index in range(3)], alone[:3])

    def test_waiting_does_nothing_and_can_be_given_up(self):
        asked = []
        ask = inferd.Sequence._take
        inferd.Sequence._take = lambda sequence, timeout_ms: asked.append(timeout_ms) or ask(sequence, timeout_ms)
        self.addCleanup(setattr, inferd.Sequence, "_take", ask)

        async def wait():
            sequence = self.connection.run("Once upon a time", max_tokens=16)
            first = await anext(sequence)
            self.daemon.process.send_signal(signal.SIGSTOP)
            try:
                with self.assertRaises(TimeoutError):
                    async with asyncio.timeout(0.3):  # what had arrived before the stop
                        async for _ in sequence:
                            pass
                del asked[:]
                with self.assertRaises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await anext(sequence)
                self.assertEqual(asked, [0])
            finally:
                self.daemon.process.send_signal(signal.SIGCONT)
            return first, await sequence.text_async()

        first, text = asyncio.run(wait())
        self.assertTrue(text.startswith(first.text))
        self.assertEqual(text, self.connection.run("Once upon a time", max_tokens=16).text())

    def test_closing_wakes_those_who_wait(self):
        async def wait(close):
            sequence = self.connection.run("Once", **ENDLESS)
            await anext(sequence)
            task = asyncio.create_task(sequence.text_async())
            await asyncio.sleep(0)
            await close()
            with self.assertRaisesRegex(inferd.InvalidArgument, "closed"):
                await task

        async def here():
            self.connection.close()

        asyncio.run(wait(here))
        self.connection = inferd.connect(self.daemon.socket)
        self.addCleanup(self.connection.close)
        asyncio.run(wait(lambda: asyncio.to_thread(self.connection.close)))

    def test_a_second_event_loop_is_refused(self):
        async def other():
            with self.connection.run("Once", **ENDLESS) as sequence:
                await sequence.text_async()

        async def both():
            first = self.connection.run("Once", **ENDLESS)
            task = asyncio.create_task(first.text_async())
            await anext(self.connection.run("x", max_tokens=1))
            self.daemon.process.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(0.3)  # what had arrived before the stop is read
                with self.assertRaisesRegex(inferd.InvalidArgument, "give each loop one of its own"):
                    await asyncio.to_thread(asyncio.run, other())
            finally:
                self.daemon.process.send_signal(signal.SIGCONT)
            first.cancel()
            await task

        asyncio.run(both())


class Robustness(WithConnection):
    def test_threads(self):
        expected = [self.connection.run(prompt, max_tokens=16).text() for prompt in Asyncio.PROMPTS]
        texts = {}

        def read(index):
            texts[index] = self.connection.run(Asyncio.PROMPTS[index % 4], max_tokens=16).text()

        threads = [threading.Thread(target=read, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([texts[index] for index in range(8)], expected * 2)

    def test_closing_ends_the_waits_of_other_threads(self):
        caught, reading = [], threading.Semaphore(0)

        def read():
            try:
                sequence = self.connection.run("Once", **ENDLESS)
                next(sequence)
                reading.release()
                sequence.text()
            except inferd.Error as error:
                caught.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in threads:
            reading.acquire()
        self.connection.close()
        for thread in threads:
            thread.join()
        self.assertEqual([str(error) for error in caught], ["the sequence is closed"] * 4)

    def test_a_forked_child_leaves_its_parents_connection_alone(self):
        program = run_python("""if True:
            import inferd, os, sys
            connection = inferd.connect()
            sequence = connection.run("Once upon a time", max_tokens=16)
            next(sequence)
            if os.fork() == 0:
                for act in (lambda: next(sequence), sequence.cancel, lambda: connection.run("x"), connection.fileno):
                    try:
                        act()
                        print("no error")
                    except inferd.InvalidArgument as error:
                        assert "after a fork, connect again" in str(error)
                sequence.close(), connection.close()
                with inferd.connect() as own:
                    print(own.run("Once upon a time", max_tokens=16).text(), end="|", flush=True)
                sys.exit(0)
            print(os.waitstatus_to_exitcode(os.wait()[1]), sequence.text(), sep="|", end="")
            """, self.daemon)
        out, complaint = program.communicate(timeout=harness.PATIENCE_S)
        text = self.connection.run("Once upon a time", max_tokens=16).text()
        self.assertEqual((program.returncode, complaint, out), (0, "", text + "|0|" + text))

    def test_ctrl_c_ends_a_wait_and_an_end_in_mid_answer_is_clean(self):
        for wait in ("sequence.text()", "asyncio.run(sequence.text_async())"):
            program = run_python("""if True:
                import asyncio, inferd
                connection = inferd.connect()
                sequence = connection.run("Once upon a time", ignore_eos=True)
                try:
                    print(next(sequence).text, flush=True)
                    %s
                except KeyboardInterrupt:
                    print("interrupted", sequence.finish_reason)
                """ % wait, self.daemon)
            program.stdout.readline()
            program.send_signal(signal.SIGINT)
            out, complaint = program.communicate(timeout=harness.PATIENCE_S)
            self.assertEqual((program.returncode, complaint, out), (0, "", "interrupted None\n"))

    def test_the_notebook_runs(self):
        program = run_python(os.path.join(harness.SOURCE, "client_lib/python/examples/notebook.py"), self.daemon)
        out, complaint = program.communicate(timeout=harness.PATIENCE_S)
        self.assertEqual((program.returncode, complaint), (0, ""))
        self.assertRegex(out, "(?s)134 million parameters, Q4_1.*Rome.*ended by: stop.* % +of .*1: .*2: .*3: .*"
                              "1, 2, 3, 4.*INVALID_ARGUMENT: temperature must be between")


class OnASmallModel(unittest.TestCase):
    def test_a_killed_daemon_is_an_error_and_its_successor_is_found(self):
        async def read(sequence):
            await sequence.text_async()

        with harness.tiny_model() as model, harness.Daemon(model=model) as daemon:
            options = {**ENDLESS, "logit_bias": {0: -100.0}}
            connection = inferd.connect(daemon.socket)
            whole = connection.run("Once", max_tokens=20).ids
            sequences = [connection.run("Once", **options) for _ in range(3)]
            begun = [next(sequence) for sequence in sequences]
            daemon.process.kill()
            daemon.process.wait()
            for sequence, act in zip(sequences, (lambda s: s.text(), lambda s: asyncio.run(read(s)), list)):
                for _ in range(2):  # it is no less true when it is asked again
                    with self.assertRaisesRegex(inferd.Unavailable, "daemon"):
                        act(sequence)
                self.assertEqual(sequence.finish_reason, "error")
                self.assertEqual(sequence.ids[:1], begun.pop(0).ids[:1])
            with self.assertRaises(inferd.Unavailable):
                connection.run("Once")
            with self.assertRaisesRegex(inferd.Unavailable, "start the daemon"):
                inferd.connect(daemon.socket)
            command = [harness.binary("inferd"), "--model", model, "--runtime-dir", daemon.runtime]
            with open(daemon.log_path, "ab") as log:
                daemon.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            harness.wait_until(daemon._answers, "the next daemon answers")
            with inferd.connect(daemon.socket) as again:
                self.assertEqual(again.run("Once", max_tokens=20).ids, whole)
            connection.close()

    def test_two_hundred_requests_leave_nothing(self):
        def here():
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

        async def read():
            await asyncio.gather(*(connection.run("x %d" % i, max_tokens=2).text_async() for i in range(20)))

        def requests(count):
            for i in range(count):
                connection.run("x %d" % i, max_tokens=1).text()

        with harness.tiny_model() as model, harness.Daemon(model=model) as daemon:
            connection = inferd.connect(daemon.socket)
            requests(5)
            asyncio.run(read())
            daemon.wait_idle()
            gc.collect()  # what earlier tests have left in cycles is none of this one's
            before = here() + (daemon.descriptors(),)
            requests(160)
            asyncio.run(read())
            asyncio.run(read())
            for _ in range(10):
                inferd.connect(daemon.socket).close()
                inferd.connect(daemon.socket)  # and one that nobody closes
            daemon.wait_idle()
            # Not more; a control connection may have been open when they were counted first.
            harness.wait_until(lambda: all(now <= then for now, then in zip(here() + (daemon.descriptors(),), before)),
                               "no more descriptors and threads than %s" % (before,))
            self.assertEqual(len(connection._sequences), 0)
            connection.close()


harness.main()
