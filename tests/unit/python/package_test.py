"""The Python package without a daemon: it says of the C interface what the header says, and errors are sentences."""

import ctypes
import inspect
import json
import math
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import types
import typing
import unittest

import inferd
from inferd import _c, _handle, _options, _sequence

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

with open(os.path.join(SOURCE, "client_lib/include/inferd/inferd.h"), encoding="utf-8") as header:
    HEADER = re.sub(r"/\*.*?\*/", "", header.read(), flags=re.DOTALL)


def constants(enumeration):
    """Name: value of an enum of the header."""
    body = re.search(r"enum %s \{(.*?)\}" % enumeration, HEADER, re.DOTALL)[1]
    return {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", body)}


class Interface(unittest.TestCase):
    def test_every_structure_lies_where_the_compiler_puts_it(self):
        printed = subprocess.run([os.environ["INFERD_LAYOUTS"]], check=True, capture_output=True, text=True).stdout
        expected = {tuple(line.split()) for line in printed.splitlines()}
        ours = set()
        for name, structure in _c.STRUCTURES.items():
            ours.add((name, "-", "0", str(ctypes.sizeof(structure))))
            for field, _ in structure._fields_:
                place = getattr(structure, field)
                ours.add((name, field, str(place.offset), str(place.size)))
        self.assertEqual(ours, expected)

    def test_every_structure_and_field_of_the_header_is_known(self):
        declared = {name: re.findall(r"(\w+);", body)
                    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", HEADER, re.DOTALL)}
        ours = {name: [field for field, _ in structure._fields_] for name, structure in _c.STRUCTURES.items()}
        self.assertEqual(ours, declared)

    def test_every_function_of_the_header_has_its_arguments(self):
        declared = {}
        for result, name, arguments in re.findall(r"INFERD_API (.*?)(inferd_\w+)\((.*?)\) INFERD_NOEXCEPT;", HEADER,
                                                  re.DOTALL):
            kinds = [] if arguments == "void" else [self.kind(argument) for argument in arguments.split(",")]
            declared[name] = (self.kind(result), kinds)
        ours = {name: (self.kind_of(result), [self.kind_of(argument) for argument in arguments])
                for name, (result, arguments) in _c.FUNCTIONS.items()}
        self.assertGreater(len(ours), 20)
        self.assertEqual(ours, declared)

    def test_every_function_refuses_a_null_handle_in_a_sentence(self):
        handles = re.findall(r"INFERD_API inferd_status (inferd_\w+)\((?:const )?inferd_(?:connection|sequence) \*\w+,",
                             HEADER)
        self.assertGreater(len(handles), 15)
        for name in handles:
            _, arguments = _c.FUNCTIONS[name]
            error = ctypes.c_void_p()
            given = [None if self.kind_of(kind) == "pointer" else kind() for kind in arguments[:-1]]
            status = getattr(_c.lib, name)(*given, ctypes.byref(error))
            with self.assertRaisesRegex(inferd.InvalidArgument, "NULL", msg=name):
                inferd._errors.check(status, error)
        for name in ("inferd_cancel", "inferd_close", "inferd_disconnect", "inferd_connection_clear"):
            getattr(_c.lib, name)(None)
        self.assertEqual(_c.lib.inferd_connection_fd(None), -1)

    def kind(self, declaration):
        """pointer, or the size of a number; of C's words."""
        if "*" in declaration:
            return "pointer"
        word = declaration.replace("const ", "").split()[0]
        return {"void": 0, "int": 4, "uint32_t": 4, "int32_t": 4, "size_t": 8, "inferd_status": 4, "inferd_finish": 4}[word]

    def kind_of(self, kind):
        if kind is None:
            return 0
        if kind in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(kind, "contents"):
            return "pointer"
        return ctypes.sizeof(kind)

    def test_constants_are_those_of_the_header(self):
        statuses = {name.removeprefix("INFERD_"): value for name, value in constants("inferd_status").items() if value}
        self.assertEqual({status.name: status.value for status in inferd.Status}, statuses)
        for status in inferd.Status:
            error = inferd._errors.make_error(status, ctypes.c_void_p())
            self.assertEqual((error.code, str(error)), (status, _c.lib.inferd_status_name(status).decode()))
        reasons = [_c.lib.inferd_finish_name(value).decode() for value in constants("inferd_finish").values() if value]
        self.assertEqual(list(typing.get_args(inferd.FinishReason)), reasons)
        priorities = ["INFERD_PRIORITY_" + name.upper() for name in typing.get_args(inferd.Priority)]
        self.assertEqual(constants("inferd_priority"), {name: i for i, name in enumerate(priorities)})
        self.assertIn("#define INFERD_TOKENIZE_SPECIAL %du" % _c.TOKENIZE_SPECIAL, HEADER)
        self.assertIn("#define INFERD_TOKENIZE_BOS %du" % _c.TOKENIZE_BOS, HEADER)
        self.assertIn("#define INFERD_UNLIMITED_TOKENS UINT32_MAX", HEADER)

    def test_a_library_that_cannot_be_used_says_why(self):
        with self.assertRaisesRegex(ImportError, "has no inferd_.*older than this Python package; update"):
            _c.declare(types.SimpleNamespace(inferd_version=types.SimpleNamespace()), "libinferd.so.0")
        with tempfile.TemporaryDirectory() as folder:
            broken = os.path.join(folder, "libinferd.so.0")
            with open(broken, "w") as file:
                file.write("no library")
            with self.assertRaisesRegex(ImportError, "cannot load .*libpcre2-8-0"):
                _c.load(broken)
            # In a process that finds none: beside the package there is none, nor where it is told to look.
            code = ("import ctypes; ctypes.CDLL = lambda path: (_ for _ in ()).throw(OSError('none here')); "
                    "import inferd")
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertRegex(done.stderr, "ImportError: cannot load libinferd.so.0: none here; install the wheel")


class Hints(unittest.TestCase):
    def public(self):
        for name in inferd.__all__:
            thing = getattr(inferd, name)
            yield name, thing
            if inspect.isclass(thing) and thing.__module__.startswith("inferd"):
                for member, value in vars(thing).items():
                    if isinstance(value, property):
                        value = value.fget
                    if inspect.isfunction(value) and not member.startswith("_"):
                        yield name + "." + member, value

    def test_everything_public_is_documented_and_typed(self):
        functions = 0
        for name, thing in self.public():
            if not inspect.isclass(thing) and not inspect.isfunction(thing):
                continue
            self.assertTrue((thing.__doc__ or "").strip(), name + " has no docstring")
            if inspect.isfunction(thing) and thing.__module__.startswith("inferd"):
                functions += 1
                hints = typing.get_type_hints(thing)
                self.assertIn("return", hints, name)
                wanted = [p for p in inspect.signature(thing, follow_wrapped=False).parameters if p != "self"]
                missing = set(wanted) - set(hints) - set(inferd.Options.__annotations__)
                self.assertEqual(missing, set(), name)
        self.assertGreater(functions, 20)
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(inferd.__file__), "py.typed")))

    def test_completion_shows_each_option(self):
        for function in (inferd.Connection.run, inferd.Sequence.fork):
            shown = inspect.signature(function).parameters
            self.assertLessEqual(set(inferd.Options.__annotations__), set(shown))


class Options(unittest.TestCase):
    def test_each_option_reaches_its_field(self):
        given = {"max_tokens": 5, "temperature": 0.5, "seed": 2**64 - 1, "branch": 3, "top_k": 4, "top_p": 0.25,
                 "min_p": 0.125, "repetition_penalty": 2, "presence_penalty": -1, "frequency_penalty": 1.5,
                 "penalty_last_n": 7, "stop": ["END", "ä"], "logprobs": 2, "logit_bias": {9: -math.inf, 8: 1},
                 "ignore_eos": True, "priority": "idle", "nice": -3, "deadline": 0.0101, "no_store": True}
        self.assertEqual(set(given), set(inferd.Options.__annotations__))
        sampling = _options.make_sampling(given)
        expected = dict(given, logprobs=1, top_logprobs=2, priority=2, ignore_eos=1, no_store=1)
        for name in ("stop", "logit_bias", "deadline"):
            del expected[name]
        self.assertEqual({name: getattr(sampling, name) for name in expected}, expected)
        self.assertEqual(sampling.stop[:sampling.stop_count], [b"END", "ä".encode()])
        self.assertEqual([(sampling.logit_bias[i].token, sampling.logit_bias[i].bias)
                          for i in range(sampling.logit_bias_count)], [(9, -math.inf), (8, 1)])
        self.assertEqual(sampling.deadline_ms, 11)

    def test_what_is_not_given_has_the_default_of_the_library(self):
        for options in ({}, {"max_tokens": None, "logprobs": None, "deadline": None, "stop": (), "logit_bias": {}}):
            sampling = _options.make_sampling(options)
            default = _c.prepared(_c.Sampling(), "inferd_sampling_init_sized")
            for name, _ in _c.Sampling._fields_:
                if name not in ("stop", "logit_bias"):
                    self.assertEqual(getattr(sampling, name), getattr(default, name), name)
            self.assertEqual(sampling.max_tokens, _c.UNLIMITED_TOKENS)

    def test_a_value_that_c_would_cut_is_refused(self):
        for options in ({"top_k": -1}, {"seed": 1 << 64}, {"branch": 1.5}, {"max_tokens": "many"}, {"nice": 1 << 31},
                        {"logprobs": -1}, {"logit_bias": {1 << 31: 0}}, {"deadline": 0}, {"deadline": math.nan},
                        {"deadline": 1e9}, {"temperature": "hot"}, {"priority": "urgent"}, {"stop": ["a\0b"]},
                        {"stop": [1]}, {"stop": ["\ud800"]}):
            with self.assertRaisesRegex(inferd.InvalidArgument, next(iter(options))):
                _options.make_sampling(options)
        with self.assertRaisesRegex(TypeError, "no option 'temprature'; there are .*temperature"):
            _options.make_sampling({"temprature": 1})

    def test_prompts(self):
        prompt = _options.make_prompt(text="a\0b", flags=2)
        self.assertEqual((prompt.text_bytes, prompt.text_flags), (3, 2))
        prompt = _options.make_prompt(ids=(i for i in (1, 2, 3)))
        self.assertEqual(prompt.ids[:prompt.ids_count], [1, 2, 3])
        prompt = _options.make_prompt(ids=[])
        self.assertEqual((bool(prompt.ids), prompt.ids_count), (True, 0))
        chat = json.loads(_options.chat_json("Hi", [{"type": "function"}], {"add_generation_prompt": False}))
        self.assertEqual(chat, {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function"}],
                                "add_generation_prompt": False})
        for wrong in ({}, {"text": "a", "ids": [1]}, {"text": b"bytes"}, {"text": "\udfff"}, {"ids": [1 << 31]},
                      {"ids": ["a"]}, {"ids": 5}):
            with self.assertRaises(inferd.InvalidArgument):
                _options.make_prompt(**wrong)
        with self.assertRaisesRegex(inferd.InvalidArgument, "JSON"):
            _options.chat_json([{"role": "user", "content": object()}], None, None)


class WithoutDaemon(unittest.TestCase):
    def test_nobody_there(self):
        with self.assertRaisesRegex(inferd.Unavailable, "/nowhere/inferd.sock.*start the daemon") as caught:
            inferd.connect("/nowhere/inferd.sock")
        self.assertEqual(caught.exception.code, inferd.Status.UNAVAILABLE)
        self.assertIsInstance(caught.exception, inferd.Error)

    def test_arguments(self):
        for arguments in ({"socket": "a\0b"}, {"model": 5}, {"client_name": "\ud800"}, {"timeout": -1},
                          {"spin_us": -1}, {"spin_us": 0.5}):
            with self.assertRaisesRegex(inferd.InvalidArgument, next(iter(arguments))):
                inferd.connect(**{"socket": "/nowhere/inferd.sock", **arguments})

    def served(self, answer):
        """What connect() raises when a daemon says `answer` to its greeting, and then closes."""
        with tempfile.TemporaryDirectory() as folder, \
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            path = os.path.join(folder, "inferd.sock")
            listener.bind(path)
            listener.listen()

            def serve():
                peer, _ = listener.accept()
                with peer:
                    self.hello = peer.recv(4096)
                    if answer:
                        peer.send(answer(self.hello))

            server = threading.Thread(target=serve)
            server.start()
            try:
                with self.assertRaises(inferd.Error) as caught:
                    inferd.connect(path, client_name="né", model="some model", timeout=30)
            finally:
                server.join()
        return caught.exception

    def test_a_daemon_of_another_version_is_told(self):
        def newer(hello):
            magic, major, minor = struct.unpack_from("<IHH", hello)
            return struct.pack("<IHHHHI", magic, major + 1, minor, 2, 16, 16)

        error = self.served(newer)
        self.assertIsInstance(error, inferd.VersionMismatch)
        self.assertRegex(str(error), "version")
        self.assertIn("né".encode(), self.hello)
        self.assertIn(b"some model", self.hello)

    def test_a_daemon_that_closes_at_once(self):
        error = self.served(None)
        self.assertIsInstance(error, inferd.Unavailable)
        self.assertRegex(str(error), "closed the connection without an answer")


class Handles(unittest.TestCase):
    def test_closing_waits_for_calls_that_go_on(self):
        handle = _handle.Handle(7, "thing")
        inside, leave, order = threading.Event(), threading.Event(), []

        def call():
            with handle.use() as pointer:
                inside.set()
                leave.wait()
                order.append(pointer)

        def close():
            order.append(("freed", handle.retire()))

        threads = [threading.Thread(target=call), threading.Thread(target=close)]
        threads[0].start()
        inside.wait()
        threads[1].start()
        while not handle.closed:
            pass
        with self.assertRaisesRegex(inferd.InvalidArgument, "the thing is closed"), handle.use():
            self.fail("used after it was closed")
        leave.set()
        for thread in threads:
            thread.join()
        self.assertEqual(order, [7, ("freed", 7)])
        self.assertIsNone(handle.retire())

    def test_a_call_that_never_ends_keeps_its_handle(self):
        handle = _handle.Handle(7, "thing")
        patience, _handle._PATIENCE_S = _handle._PATIENCE_S, 0.01
        try:
            with handle.use():
                self.assertIsNone(handle.retire())
                self.assertTrue(handle.in_use)
        finally:
            _handle._PATIENCE_S = patience

    def test_a_child_process_neither_uses_nor_frees_it(self):
        handle = _handle.Handle(7, "thing")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with handle.use():
                    pass
            except inferd.InvalidArgument as error:
                code = 0 if "after a fork, connect again" in str(error) and handle.retire() is None else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(handle.retire(), 7)

    def test_forks_of_a_family_draw_apart(self):
        numbers = _sequence.branch_numbers(4)
        self.assertEqual([next(numbers), next(numbers)], [5, 6])


unittest.main(verbosity=2)
