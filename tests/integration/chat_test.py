"""inferctl chat at a terminal: history, commands, Ctrl-C ends the answer and not the program."""

import os
import pty
import select
import time

import harness


class Terminal:
    """inferctl chat on a pseudo-terminal."""

    def __init__(self, daemon, *options):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            environment = dict(daemon.environment(), TERM="dumb")
            os.execve(harness.binary("inferctl"), ["inferctl", "chat", *options], environment)
        self.seen = ""

    def expect(self, part):
        """Reads until `part` has come; returns what came up to it, and forgets that."""
        end = time.monotonic() + harness.PATIENCE_S
        while part not in self.seen:
            if time.monotonic() > end:
                raise AssertionError("%r did not come, but %r" % (part, self.seen))
            if select.select([self.fd], [], [], 1)[0]:
                try:
                    self.seen += os.read(self.fd, 4096).decode(errors="replace")
                except OSError:
                    raise AssertionError("chat ended before %r came: %r" % (part, self.seen)) from None
        at = self.seen.index(part) + len(part)
        before, self.seen = self.seen[:at], self.seen[at:]
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait(self):
        """The exit code, after the program has ended."""
        try:
            while select.select([self.fd], [], [], harness.PATIENCE_S)[0] and os.read(self.fd, 4096):
                pass
        except OSError:
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Chat(harness.DaemonTest):
    def test_a_conversation(self):
        chat = Terminal(self.daemon, "--max-tokens", "12")
        chat.expect("> ")
        chat.type("What is the capital of Italy? Answer with one word.\r")
        chat.expect("Rome")
        chat.expect("> ")
        chat.type("/usage\r")
        first = chat.expect("cached")
        chat.expect("> ")
        chat.type("And of France?\r")
        chat.expect("> ")
        chat.type("/usage\r")
        second = chat.expect("cached")
        tokens = [int(text.split("prompt ")[1].split()[0]) for text in (first, second)]
        self.assertGreater(tokens[1], tokens[0], "the second turn carries the first")
        chat.expect("> ")
        chat.type("/reste\r")
        chat.expect("did you mean /reset?")
        chat.expect("> ")
        chat.type("/reset\r")
        chat.expect("A new conversation")
        chat.expect("> ")
        chat.type("\x04")
        self.assertEqual(chat.wait(), 0)

    def test_ctrl_c_ends_the_answer_and_not_the_program(self):
        chat = Terminal(self.daemon, "--logit-bias", "2=-inf", "--logit-bias", "0=-inf")
        chat.expect("> ")
        chat.type("Count from one to a hundred.\r")
        chat.expect("Count from one to a hundred.\r\n")
        harness.wait_until(lambda: self.daemon.status()["sequences"] == 1, "the answer runs")
        chat.type("\x03")
        chat.expect("[cancelled]")
        self.daemon.wait_idle()
        chat.expect("> ")
        chat.type("half a line\x03")
        chat.expect("> ")
        chat.type("/exit\r")
        self.assertEqual(chat.wait(), 0)

    def test_typed_lines_are_there_the_next_time_and_private(self):
        chat = Terminal(self.daemon)
        chat.expect("> ")
        chat.type("/usage\r")
        chat.expect("cached")
        chat.expect("> ")
        chat.type("\x04")
        self.assertEqual(chat.wait(), 0)
        path = os.path.join(self.daemon.folder, "state/inferd/chat_history")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        chat = Terminal(self.daemon)
        chat.expect("> ")
        chat.type("\x10\r")  # Ctrl-P: the line before
        chat.expect("cached")
        chat.expect("> ")
        chat.type("\x04")
        self.assertEqual(chat.wait(), 0)

    def test_lines_from_a_pipe_are_questions(self):
        done = self.daemon.ctl("chat", "--max-tokens", "8", input=b"What is the capital of Italy? Answer with one word.\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"Rome", done.stdout)


harness.main()
