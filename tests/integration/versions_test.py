"""Client libraries and daemons of other versions agree, or one of them refuses with a sentence.

A go-between passes the handshake of a real client on to a real daemon and changes it on the way: to the daemon it plays
an older or newer client, to the client an older or newer daemon. Rings and descriptors are then the real ones.
The layouts are those of ipc/handshake.h.
"""

import os
import select
import socket
import struct
import tempfile
import threading
import unittest

import harness

HEADER = "<IHHHHI"  # magic, major, minor, type, fixed_bytes, message_bytes
HELLO_BYTES, WELCOME_BYTES = 72, 128
TEXT_TABLES, DELIVERED, URGENCY, FORK, CACHE_DOMAIN, USAGE = (1 << bit for bit in range(6))
UNKNOWN = 1 << 40
DESCRIPTORS = 5
PROMPT = ["--ids", "5,6,7,8", "--max-tokens", "12"]


class Message(bytearray):
    """A handshake message with fields that can be read and overwritten."""

    def field(self, form, offset):
        return struct.unpack_from("<" + form, self, offset)[0]

    def put(self, form, offset, value):
        struct.pack_into("<" + form, self, offset, value)

    def resize_fixed(self, size, filler=b"\0"):
        """Cuts the fixed part, or adds to its end."""
        before = self.field("H", 10)
        self[before:before] = filler * max(0, size - before)
        del self[size:before]
        self.put("H", 10, size)
        self.put("I", 12, len(self))


def unchanged(message):
    pass


class GoBetween:
    """Listens where a client connects. `hello` and `welcome` change the messages; `heard` has them as they came."""

    def __init__(self, daemon, hello=unchanged, welcome=unchanged):
        self.folder = tempfile.TemporaryDirectory(prefix="inferd-test-")
        self.path = os.path.join(self.folder.name, "s")
        self.daemon, self.change_hello, self.change_welcome = daemon, hello, welcome
        self.heard = {}
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        client, _ = self.listener.accept()
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
            daemon.connect(self.daemon.socket)
            hello = Message(client.recv(4096))
            self.heard["hello"] = bytes(hello)
            self.change_hello(hello)
            daemon.send(hello)
            data, descriptors, _, _ = socket.recv_fds(daemon, 4096, DESCRIPTORS)
            welcome = Message(data)
            self.heard["welcome"] = bytes(welcome)
            if welcome.field("H", 8) == 2:
                self.change_welcome(welcome)
            socket.send_fds(client, [welcome], descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            # From here on either side's end is the other's.
            select.select([client, daemon], [], [], harness.PATIENCE_S)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.thread.join(harness.PATIENCE_S)
        self.listener.close()
        self.folder.cleanup()


class Versions(harness.DaemonTest):
    @classmethod
    def setUpClass(cls):
        cls.daemon = harness.Daemon(model=cls.enterClassContext(harness.tiny_model()))
        cls.answer = cls.daemon.answer(*PROMPT)
        # What client and daemon of this build agree on.
        with GoBetween(cls.daemon) as between, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(between.path)
            hello = Message(struct.pack(HEADER, 0x44524E49, 2, 0, 1, HELLO_BYTES, HELLO_BYTES))
            hello += struct.pack("<QQQIHHHH", UNKNOWN - 1, 0, 0, 0, 64, 128, 32, 64) + bytes(20)
            client.send(hello)
            data, descriptors, _, _ = socket.recv_fds(client, 4096, DESCRIPTORS)
            for descriptor in descriptors:
                os.close(descriptor)
        cls.all = Message(data).field("Q", 16)

    def run_between(self, *arguments, hello=unchanged, welcome=unchanged):
        """inferctl run through a go-between. Returns how it ended, and the features of the daemon's welcome."""
        with GoBetween(self.daemon, hello, welcome) as between:
            environment = self.daemon.environment()
            environment["INFERD_SOCKET"] = between.path
            done = harness.subprocess.run([harness.binary("inferctl"), "run", "--json", *arguments], env=environment,
                                          stdin=harness.subprocess.DEVNULL, capture_output=True,
                                          timeout=harness.PATIENCE_S)
        answer = Message(between.heard["welcome"])
        self.features = answer.field("Q", 16) if answer.field("H", 8) == 2 else None
        return done

    def agrees(self, *arguments, **changes):
        done = self.run_between(*PROMPT, *arguments, **changes)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = harness.json.loads(done.stdout)
        self.assertEqual(answer["ids"], self.answer["ids"])
        return answer

    def refuses(self, *sentences, arguments=(), **changes):
        done = self.run_between(*PROMPT, *arguments, **changes)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout, b"")
        for sentence in sentences:
            self.assertIn(sentence, done.stderr.decode())

    def test_the_messages_are_as_this_test_knows_them(self):
        def look(size):
            return lambda message: self.assertEqual(message.field("H", 10), size)
        self.agrees(hello=look(HELLO_BYTES), welcome=look(WELCOME_BYTES))
        self.assertEqual(self.features, self.all)
        self.assertEqual(self.all & (UNKNOWN | (1 << 6) - 1), (1 << 6) - 1)

    # ---- clients of other versions, before this daemon ----

    def test_a_client_of_another_minor_version_is_served(self):
        self.agrees(hello=lambda hello: hello.put("H", 6, 7))

    def test_an_older_client_that_offers_less_is_served_with_that(self):
        def older(hello):
            hello.put("Q", 16, TEXT_TABLES | DELIVERED)
        answer = self.agrees(hello=older)
        self.assertEqual(self.features, TEXT_TABLES | DELIVERED)
        self.assertEqual(answer["usage"]["completion_tokens"], self.answer["usage"]["completion_tokens"])

    def test_what_a_newer_client_offers_is_not_taken_and_what_it_needs_is_refused(self):
        self.agrees(hello=lambda hello: hello.put("Q", 16, self.all | UNKNOWN))
        self.assertEqual(self.features, self.all)
        self.refuses("features that this daemon lacks (bits 0x10000000000)", "update the daemon",
                     hello=lambda hello: hello.put("Q", 24, UNKNOWN))

    def test_a_newer_client_may_say_more_as_long_as_it_says_nothing(self):
        self.agrees(hello=lambda hello: hello.resize_fixed(HELLO_BYTES + 24))
        self.refuses("fields that this side does not know", "same version",
                     hello=lambda hello: hello.resize_fixed(HELLO_BYTES + 24, b"\1"))
        self.refuses("flags that this daemon does not know", hello=lambda hello: hello.put("I", 40, 4))

    def test_a_client_with_a_shorter_hello_is_refused(self):
        self.refuses("lacks fields that this side needs", "same version",
                     hello=lambda hello: hello.resize_fixed(HELLO_BYTES - 8))

    def test_a_client_of_another_major_version_is_told_both(self):
        for major in (0, 1, 3, 999):
            self.refuses("the client speaks version %d.0" % major, "this daemon speaks 2.0", "the same release",
                         hello=lambda hello: hello.put("H", 4, major))

    def test_a_client_with_other_records_is_refused(self):
        for offset, size in ((44, 128), (46, 120), (46, 136), (48, 24), (50, 48)):
            self.refuses("records have other sizes", "the same release",
                         hello=lambda hello: hello.put("H", offset, size))

    # ---- daemons of other versions, before this client library ----

    def test_an_older_daemon_serves_what_it_knows(self):
        def without(features):
            # Of the client's offer the older daemon knows less, and so says its welcome.
            return {"hello": lambda hello: hello.put("Q", 16, self.all & ~features)}
        self.agrees(**without(USAGE))
        self.refuses("did not agree on classes and deadlines", "same version", arguments=["--priority", "batch"],
                     **without(URGENCY))
        self.refuses("did not agree on requests that leave nothing in the cache", arguments=["--no-store"],
                     **without(CACHE_DOMAIN))
        self.assertEqual(self.features, self.all & ~CACHE_DOMAIN)

    def test_a_newer_daemons_models_may_have_fields_that_say_nothing(self):
        def with_more(filler):
            def change(welcome):
                size, strings = welcome.field("H", 92), 80
                at = WELCOME_BYTES + sum(welcome.field("H", offset) for offset in range(strings, strings + 10, 2)) + size
                self.assertEqual(welcome.field("H", 90), 1)
                welcome[at:at] = filler
                welcome.put("H", 92, size + len(filler))
                welcome.put("I", 12, len(welcome))
            return change
        self.agrees(welcome=with_more(bytes(16)))
        self.refuses("list of models uses fields that this client does not know", "same version",
                     welcome=with_more(b"\1" + bytes(15)))

    def test_a_daemon_that_lacks_what_the_client_needs_is_refused(self):
        self.refuses("lacks features that this client needs", "update the daemon",
                     welcome=lambda welcome: welcome.put("Q", 16, self.all & ~DELIVERED))

    def test_a_daemon_that_uses_what_was_not_offered_is_refused(self):
        self.refuses("features that this client did not offer",
                     welcome=lambda welcome: welcome.put("Q", 16, self.all | UNKNOWN))

    def test_a_newer_daemon_may_say_more_as_long_as_it_says_nothing(self):
        def newer(welcome):
            welcome.put("H", 6, 9)
            welcome.resize_fixed(WELCOME_BYTES + 40)
        self.agrees(welcome=newer)
        self.refuses("fields that this side does not know",
                     welcome=lambda welcome: welcome.resize_fixed(WELCOME_BYTES + 8, b"\7"))

    def test_a_daemon_with_a_shorter_welcome_is_refused(self):
        self.refuses("lacks fields that this side needs",
                     welcome=lambda welcome: welcome.resize_fixed(WELCOME_BYTES - 32))

    def test_a_daemon_of_another_major_version_is_told_apart(self):
        for major in (0, 1, 3):
            self.refuses("the daemon speaks version %d.0" % major, "this client speaks 2.0",
                         welcome=lambda welcome: welcome.put("H", 4, major))

    def test_rings_of_impossible_sizes_and_other_descriptors_are_refused(self):
        self.refuses("sizes of its rings", welcome=lambda welcome: welcome.put("I", 32, 100))
        self.refuses("announced", welcome=lambda welcome: welcome.put("I", 36, 1 << 19))
        self.refuses("descriptors", welcome=lambda welcome: welcome.put("I", 44, 6))


if __name__ == "__main__":
    harness.main()
