"""What the integration tests share: a private daemon on a real model, and its tools.

The sample model is found by $INFERD_TEST_MODEL, else where tools/fetch_model.sh keeps it. The folder of
the binaries comes in $INFERD_BIN_DIR, which ctest sets. Only Python's standard library is used.
"""

import contextlib
import ctypes
import importlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.environ.get("INFERD_BIN_DIR", "")
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# A wait that is only there so that a fault ends the test instead of hanging it; nothing is measured by
# it. Sanitizer builds on a busy machine are slow.
PATIENCE_S = 240
# To `inferctl run`: what ends an answer is only what the test asked for.
ENDLESS = ["--logit-bias", "2=-inf", "--logit-bias", "0=-inf"]


def model_path():
    path = os.environ.get("INFERD_TEST_MODEL")
    if not path:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        path = os.path.join(cache, "inferd/models/SmolLM2-135M-Instruct.Q4_1.gguf")
    if not os.path.exists(path):
        sys.exit("There is no sample model at " + path + "; run tools/fetch_model.sh, or set INFERD_TEST_MODEL.")
    return path


def binary(name):
    path = os.path.join(BIN, name)
    if not BIN or not os.path.exists(path):
        sys.exit("There is no " + name + " in INFERD_BIN_DIR='" + BIN + "'; build it and run the tests by ctest.")
    return path


def python_package():
    """The Python package from its sources, over the library of this build. (python_test.py tests the wheel.)"""
    # The package asks for the library by its name, and this one has it already.
    ctypes.CDLL(os.path.join(os.path.dirname(BIN.rstrip("/")), "lib", "libinferd.so.0"))
    sys.path.insert(0, os.path.join(SOURCE, "client_lib/python"))
    return importlib.import_module("inferd")


def wait_until(condition, what):
    """Returns the first true value of condition(); fails naming `what` if it stays false."""
    end = time.monotonic() + PATIENCE_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("still not true after %d s: %s" % (PATIENCE_S, what))
        time.sleep(0.02)


@contextlib.contextmanager
def tiny_model(**options):
    """The path of a model with random weights, so small that a step takes well under a millisecond."""
    shape = {"layers": 2, "embedding": 64, "heads": 4, "kv-heads": 2, "feed-forward": 128,
             "vocabulary": 384, "context": 4096, **options}
    with tempfile.TemporaryDirectory(prefix="inferd-test-") as folder:
        path = os.path.join(folder, "tiny.gguf")
        words = [word for name, value in shape.items() for word in ("--" + name, str(value))]
        subprocess.run([binary("inferd-bench"), "make-model", "--output", path, *words], check=True,
                       stdout=subprocess.DEVNULL)
        yield path


class Daemon:
    """A private daemon in a folder of its own. Use as a context manager, or call stop()."""

    def __init__(self, *options, model=None, log=None):
        """`log`: an open file that gets the daemon's standard error instead of self.log_path."""
        self.folder = tempfile.mkdtemp(prefix="inferd-test-")
        self.runtime = os.path.join(self.folder, "run")
        self.socket = os.path.join(self.runtime, "inferd.sock")
        self.control = os.path.join(self.runtime, "control.sock")
        self.log_path = os.path.join(self.folder, "log")
        self.command = [binary("inferd"), "--model", model or model_path(), "--runtime-dir", self.runtime, *options]
        self.start(log)

    def start(self, log=None):
        """Starts it; again, on what it left behind, once it was killed."""
        with open(self.log_path, "ab") as file:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=file, stderr=log or file)
        try:
            wait_until(self._answers, "the daemon answers")
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _answers(self):
        if self.process.poll() is not None:
            raise AssertionError("the daemon ended with %d:\n%s" % (self.process.returncode, self.log()))
        try:
            self.call("Status")
            return True
        except OSError:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.stop()

    def log(self):
        with open(self.log_path, "rb") as file:
            return file.read().decode(errors="replace")

    def call(self, method, **parameters):
        """One Varlink call, without inferctl. Returns the whole reply."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(self.control)
            call = {"method": "org.inferd.Control." + method, "parameters": parameters}
            connection.sendall(json.dumps(call).encode() + b"\0")
            reply = b""
            while not reply.endswith(b"\0"):
                piece = connection.recv(65536)
                if not piece:
                    raise OSError("the control connection ended in mid-reply")
                reply += piece
        return json.loads(reply[:-1])

    def status(self):
        return self.call("Status")["parameters"]

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def environment(self):
        environment = dict(os.environ, INFERD_SOCKET=self.socket, INFERD_CONTROL_SOCKET=self.control)
        environment["XDG_STATE_HOME"] = os.path.join(self.folder, "state")
        return environment

    def ctl(self, *arguments, input=None):
        """Runs inferctl to its end. `input` is bytes; the result's stdout and stderr are bytes."""
        return subprocess.run([binary("inferctl"), *arguments], input=input or b"", capture_output=True,
                              env=self.environment(), timeout=PATIENCE_S)

    def start_ctl(self, *arguments, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen([binary("inferctl"), *arguments], env=self.environment(), **options)

    def answer(self, *arguments, input=None):
        """inferctl run --json, which must succeed."""
        done = self.ctl("run", "--json", *arguments, input=input)
        if done.returncode != 0:
            raise AssertionError("inferctl run %s: %s\n%s" % (arguments, done.stderr.decode(), self.log()))
        return json.loads(done.stdout)

    def wait_idle(self):
        """Until no sequence is left and no page is live."""
        wait_until(lambda: self.status()["sequences"] == 0 and self.status()["pages"]["live"] == 0,
                   "nothing is running and no page is live")

    def end(self, which=signal.SIGTERM):
        """Sends a signal and returns the exit code."""
        self.process.send_signal(which)
        return self.process.wait(PATIENCE_S)

    def ctl_as(self, uid, *arguments, groups=()):
        """inferctl as another user. Needs root, and a daemon with access = "all"."""
        os.chmod(self.folder, 0o755)
        return subprocess.run([binary("inferctl"), *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                              env=self.environment(), timeout=PATIENCE_S, user=uid, group=uid,
                              extra_groups=list(groups))

    def stop(self):
        """Ends the daemon; it must have lived until now and must end cleanly."""
        if self.process.poll() is None:
            code = self.end()
            log = self.log()
            shutil.rmtree(self.folder, ignore_errors=True)
            if code != 0:
                raise AssertionError("the daemon ended with %d:\n%s" % (code, log))
        elif self.process.returncode != 0:
            raise AssertionError("the daemon had ended with %d:\n%s" % (self.process.returncode, self.log()))


class Footprint:
    """What the daemon holds, read while it is idle: descriptors, and mappings by what they map."""

    def __init__(self, daemon):
        self.descriptors = daemon.descriptors()
        self.shared = {}
        self.lines = 0
        with open("/proc/%d/maps" % daemon.process.pid) as file:
            for line in file:
                self.lines += 1
                name = line.split(maxsplit=5)[5].strip() if line.count(" ") > 5 else ""
                if name.startswith("/memfd:"):
                    self.shared[name] = self.shared.get(name, 0) + 1

    def __eq__(self, other):
        return (self.descriptors, self.shared) == (other.descriptors, other.shared)

    def __repr__(self):
        return "%d descriptors, %d mappings, of memfds %s" % (self.descriptors, self.lines, self.shared)


class DaemonTest(unittest.TestCase):
    """Tests that share one daemon. After each test it must be idle and sound again."""

    options = ()

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(*cls.options)

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()

    def tearDown(self):
        self.daemon.wait_idle()
        self.assertEqual(self.daemon.ctl("verify").returncode, 0, self.daemon.log())


def vocabulary_only(source, target):
    """Writes the metadata of a GGUF file, without its tensors, to another file."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    with open(source, "rb") as file:
        data = file.read(64 << 20)
    magic, version, _, keys = struct.unpack_from("<4sIQQ", data)
    assert magic == b"GGUF"

    def skip_string(at):
        return at + 8 + struct.unpack_from("<Q", data, at)[0]

    def skip_value(at, kind):
        if kind == 8:
            return skip_string(at)
        if kind != 9:
            return at + sizes[kind]
        element, count = struct.unpack_from("<IQ", data, at)
        at += 12
        if element in sizes:
            return at + sizes[element] * count
        for _ in range(count):
            at = skip_value(at, element)
        return at

    at = 24
    for _ in range(keys):
        at = skip_string(at)
        at = skip_value(at + 4, struct.unpack_from("<I", data, at)[0])
    with open(target, "wb") as file:
        file.write(struct.pack("<4sIQQ", magic, version, 0, keys) + data[24:at])


def main():
    unittest.main(verbosity=2)
