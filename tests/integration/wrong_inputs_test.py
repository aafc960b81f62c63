"""Whatever is typed wrongly gets a sentence on standard error and the documented exit code."""

import json
import os
import subprocess

import harness

FAILED, USAGE, NO_DAEMON = 1, 2, 3


class WrongInputs(harness.DaemonTest):
    def refused(self, code, part, *arguments, input=None):
        """The command ends with `code`; its complaint is one sentence that contains `part`."""
        with self.subTest(arguments=arguments):
            done = self.daemon.ctl(*arguments, input=input)
            complaint = done.stderr.decode()
            self.assertEqual(done.returncode, code, complaint)
            self.assertIn(part, complaint)
            self.assertTrue(complaint.startswith("inferctl: "), complaint)
            self.assertEqual(complaint.count("\n"), 1, complaint)
            self.assertEqual(done.stdout, b"")

    def test_unknown_words_suggest_the_nearest(self):
        self.refused(USAGE, "did you mean 'status'?", "statsu")
        self.refused(USAGE, "did you mean --max-tokens?", "run", "--max-token", "5", "hello")
        self.refused(USAGE, "inferctl --help", "frobnicate")

    def test_every_command_refuses_an_unknown_option_and_explains_itself(self):
        overview = self.daemon.ctl("--help").stdout.decode()
        commands = [line.split()[0] for line in overview.splitlines() if line.startswith("  ")]
        self.assertEqual(len(commands), 18)
        for command in commands:
            self.refused(USAGE, "there is no option --no-such", command, "--no-such")
            explained = self.daemon.ctl(command, "--help")
            self.assertEqual(explained.returncode, 0)
            self.assertIn("usage: inferctl " + command, explained.stdout.decode())

    def test_run(self):
        self.refused(USAGE, "no prompt", "run")
        self.refused(USAGE, "prompt is empty", "run", "")
        self.refused(USAGE, "one argument too many", "run", "two", "words")
        self.refused(USAGE, "from 1 to", "run", "--max-tokens", "0", "hello")
        self.refused(USAGE, "from 0 to 1", "run", "--top-p", "1.5", "hello")
        self.refused(USAGE, "from 0 to", "run", "--temperature", "hot", "hello")
        self.refused(USAGE, "from 0 to 20", "run", "--json", "--logprobs", "21", "hello")
        self.refused(USAGE, "needs --json", "run", "--logprobs", "1", "hello")
        self.refused(USAGE, "--raw leaves out", "run", "--raw", "--system", "x", "hello")
        self.refused(USAGE, "one of the two", "run", "--ids", "1", "hello")
        self.refused(USAGE, "'x' is not a token id", "run", "--ids", "1,x")
        self.refused(USAGE, "42=-inf", "run", "--logit-bias", "42", "hello")
        self.refused(USAGE, "UTF-8", "run", "-", input=b"\xff\xfe")

    def test_run_names_a_model_that_is_not_there(self):
        done = self.daemon.ctl("run", "--model", "no-such-model", "hello")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no-such-model", done.stderr.decode())

    def test_run_refuses_tokens_outside_the_vocabulary(self):
        done = self.daemon.ctl("run", "--ids", "49152")
        self.assertIn(done.returncode, (FAILED, USAGE))
        self.assertIn("49152", done.stderr.decode())

    def test_a_prompt_that_can_never_fit_is_refused_with_the_figure(self):
        done = self.daemon.ctl("run", "--ids", "-", input=b"81 " * 9000)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), "9000.*8192")
        self.assertEqual(done.stdout, b"")

    def test_control_commands(self):
        self.refused(USAGE, "inferctl ps", "cancel")
        self.refused(USAGE, "inferctl ps", "cancel", "seven")
        self.refused(FAILED, "99999", "cancel", "99999")
        self.refused(USAGE, "give a level", "log-level")
        done = self.daemon.ctl("log-level", "loud")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("loud", done.stderr.decode())

    def test_text_tools(self):
        self.refused(FAILED, "/no/such.gguf", "tokenize", "--model", "/no/such.gguf")
        self.refused(USAGE, "'x' is not a token id", "detokenize", input=b"1 x")
        self.refused(USAGE, "no token 49152", "detokenize", input=b"49152")
        self.refused(USAGE, "not JSON", "template", input=b"hello")
        self.refused(FAILED, "/no/such.jinja", "template", "--template", "/no/such.jinja", input=b"[]")
        not_a_model = os.path.join(self.daemon.folder, "no.gguf")
        with open(not_a_model, "wb") as file:
            file.write(b"this is no model")
        self.refused(FAILED, "GGUF", "tokenize", "--model", not_a_model)

    def test_a_template_error_names_its_line(self):
        path = os.path.join(self.daemon.folder, "wrong.jinja")
        with open(path, "w") as file:
            file.write("fine\n{% import 'x' as y %}\n")
        done = self.daemon.ctl("template", "--template", path, input=b"[]")
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("line 2", done.stderr.decode())
        self.assertIn("import", done.stderr.decode())

    def test_without_a_daemon_every_command_says_how_to_start_one(self):
        environment = dict(os.environ, INFERD_SOCKET="/tmp/no-inferd-here/inferd.sock")
        environment.pop("INFERD_CONTROL_SOCKET", None)
        for command in (["run", "hello"], ["chat"], ["status"], ["list"], ["ps"], ["cancel", "1"], ["verify"],
                        ["drain"], ["reload"], ["log-level", "info"], ["metrics"], ["tokenize"], ["detokenize"],
                        ["template"]):
            with self.subTest(command=command):
                done = subprocess.run([harness.binary("inferctl"), *command], env=environment, capture_output=True,
                                      input=b"", timeout=harness.PATIENCE_S)
                self.assertEqual(done.returncode, NO_DAEMON, done.stderr)
                self.assertIn("/tmp/no-inferd-here", done.stderr.decode())
                self.assertIn("start", done.stderr.decode())

    def test_a_full_disk_is_no_success(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([harness.binary("inferctl"), "status"], env=self.daemon.environment(), stdout=full,
                                  stderr=subprocess.PIPE, timeout=harness.PATIENCE_S)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("could not be written", done.stderr.decode())

    def test_every_json_is_json(self):
        for command in (["status"], ["list"], ["ps"], ["verify"], ["metrics"], ["log-level", "info"]):
            with self.subTest(command=command):
                done = self.daemon.ctl(*command, "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIsInstance(json.loads(done.stdout), dict)
                self.assertEqual(self.daemon.ctl(*command).returncode, 0)

    def test_status_has_the_promised_names(self):
        status = json.loads(self.daemon.ctl("status", "--json").stdout)
        for name in ("version", "pid", "uptime_s", "models", "pages", "sequences", "sessions", "tokens"):
            self.assertIn(name, status)
        self.assertEqual(status["pid"], self.daemon.process.pid)
        self.assertEqual(set(status["pages"]) & {"total", "free", "live", "cached"},
                         {"total", "free", "live", "cached"})
        self.assertEqual(set(status["tokens"]) & {"prompt", "computed", "cached", "generated"},
                         {"prompt", "computed", "cached", "generated"})


harness.main()
