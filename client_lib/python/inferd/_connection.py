"""A connection to the daemon: what is asked of it begins here."""

from __future__ import annotations

import collections.abc as abc
import ctypes
import dataclasses
import itertools
import os
import sys
import time
import weakref
from typing import Any, Optional, Self, Unpack

from . import _c
from ._errors import InvalidArgument, Status, TimedOut, Unavailable, check
from ._handle import Handle
from ._options import (
    Message, Options, Priority, chat_json, encoded, id_array, make_prompt, make_sampling, milliseconds, shows_options, text_flags,
    utf8)
from ._sequence import Sequence, branch_numbers
from ._waiting import Watcher

Tools = abc.Sequence[abc.Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Model:
    """What the daemon says of one of its models."""

    name: str
    architecture: str
    quantization: str
    numerics_id: str  # equal ids give equal results, to the last bit
    parameters: int
    vocabulary: int
    context_tokens: int  # longest sequence, prompt and answer together
    bos_token: Optional[int]
    eos_token: Optional[int]
    has_chat_template: bool
    in_use: bool  # by the connection that was asked


def connect(socket: Optional[str | os.PathLike[str]] = None, *, model: Optional[str] = None,
            client_name: Optional[str] = None, cache_domain: Optional[str] = None,
            timeout: Optional[float] = None, spin_us: int = 0) -> Connection:
    """Connects to the daemon. Blocks up to `timeout` seconds (5 by default) for its answer.

    socket: the path that the daemon listens on; without one $INFERD_SOCKET, then
        $XDG_RUNTIME_DIR/inferd/inferd.sock, then /run/inferd/inferd.sock.
    model: its name; without one the daemon's first model.
    client_name: what `inferctl ps` shows; without one the program's name.
    cache_domain: one that the administrator opened for several users: prompts that begin alike are computed once
        for all who ask for it, who can therefore measure what the others' prompts begin with.
    spin_us: how long a wait spins before it sleeps; for the last microseconds of latency, at the price of a core.
    """
    options = _c.prepared(_c.ConnectOptions(), "inferd_connect_options_init_sized")
    if socket is not None:
        options.socket_path = encoded("socket", os.fspath(socket))
    if model is not None:
        options.model = encoded("model", model)
    name = client_name if client_name is not None else os.path.basename(sys.argv[0] if sys.argv else "") or "python3"
    options.client_name = encoded("client_name", name)
    if cache_domain is not None:
        options.cache_domain = encoded("cache_domain", cache_domain)
    if timeout is not None:
        options.timeout_ms = milliseconds("timeout", timeout)
    if not isinstance(spin_us, int) or not 0 <= spin_us <= 1_000_000:
        raise InvalidArgument("spin_us must be a whole number of microseconds up to a second, not %r" % (spin_us,))
    options.spin_us = spin_us
    pointer, error = ctypes.c_void_p(), ctypes.c_void_p()
    check(_c.lib.inferd_connect(ctypes.byref(options), ctypes.byref(pointer), ctypes.byref(error)), error)
    assert pointer.value is not None
    return Connection(pointer.value)


class Connection:
    """A connection to the daemon, from connect(). Any thread may use it, several at once.

    Close it by close() or a `with` block; that ends its sequences. After fork() the child process connects for
    itself: there, the parent's connections raise InvalidArgument. If the daemon goes away, sequences raise
    Unavailable; reconnect(), and resume() them.
    """

    def __init__(self, pointer: int) -> None:
        self._handle = Handle(pointer, "connection")
        self._sequences: weakref.WeakSet[Sequence] = weakref.WeakSet()
        self._watcher = Watcher(self._handle)
        self._finalizer = weakref.finalize(self, _disconnect, self._handle, self._sequences, self._watcher)
        self._models = tuple(self._read_models())
        self._model = next(model for model in self._models if model.in_use)

    @property
    def model(self) -> Model:
        """The model that it uses."""
        return self._model

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that the daemon offers, as it was when this connection was opened: connect(model=...) takes the
        name of one. Of a daemon that is older than the library, the one that this connection uses."""
        return self._models

    # ---- sequences ----

    @shows_options
    def run(self, prompt: Optional[str] = None, *, messages: Optional[str | abc.Sequence[Message]] = None,
            ids: Optional[abc.Iterable[int]] = None, tools: Optional[Tools] = None,
            variables: Optional[abc.Mapping[str, Any]] = None, special: bool = False, bos: bool = True,
            **options: Unpack[Options]) -> Sequence:
        """Submits a prompt and returns its answer, to be read as it comes.

        One of `prompt` (a text to be continued), `messages` (a chat: a list of {"role", "content"}, or one
        question as a str) and `ids` (tokens, taken as they are). With messages: `tools`, and `variables` for the
        model's chat template. With prompt: `special`, whether names of control tokens in it become those tokens,
        and `bos`, whether it begins as the model's prompts begin. The options are those of inferd.Options.

        Does not block, unless the daemon is behind by a whole ring of submissions (then up to a second).
        """
        request = _prompt(prompt, messages, ids, tools, variables, text_flags(special, bos))
        sampling = make_sampling(options)
        sequence, error = ctypes.c_void_p(), ctypes.c_void_p()
        with self._handle.use() as pointer:
            status = _c.lib.inferd_open(pointer, ctypes.byref(request), ctypes.byref(sampling), ctypes.byref(sequence),
                                        ctypes.byref(error))
            check(status, error)
            return self._adopt(sequence, options, branch_numbers(sampling.branch))

    @shows_options
    def samples(self, count: int, prompt: Optional[str] = None, *,
                messages: Optional[str | abc.Sequence[Message]] = None, ids: Optional[abc.Iterable[int]] = None,
                tools: Optional[Tools] = None, variables: Optional[abc.Mapping[str, Any]] = None, special: bool = False,
                bos: bool = True, **options: Unpack[Options]) -> list[Sequence]:
        """`count` answers to one prompt, which is computed and kept once. They draw by the option `branch` (0 if it
        is not given) and the numbers after it. The rest is as for run()."""
        if not isinstance(count, int) or not 0 < count < 1 << 16:
            raise InvalidArgument("count must be a whole number above 0 and below 65536, not %r" % (count,))
        request = _prompt(prompt, messages, ids, tools, variables, text_flags(special, bos))
        sampling = make_sampling(options)
        opened, error = (ctypes.c_void_p * count)(), ctypes.c_void_p()
        with self._handle.use() as pointer:
            status = _c.lib.inferd_open_samples(pointer, ctypes.byref(request), ctypes.byref(sampling), count, opened,
                                                ctypes.byref(error))
            check(status, error)
            branches = branch_numbers(sampling.branch + count - 1)
            return [self._adopt(ctypes.c_void_p(sample), {**options, "branch": sampling.branch + i}, branches)
                    for i, sample in enumerate(opened)]

    def score(self, prompt: Optional[str] = None, continuation: Optional[str] = None, *,
              messages: Optional[str | abc.Sequence[Message]] = None, ids: Optional[abc.Iterable[int]] = None,
              continuation_ids: Optional[abc.Iterable[int]] = None, special: bool = False, bos: bool = True,
              top: int = 0, priority: Priority = "interactive", nice: int = 0, deadline: Optional[float] = None,
              no_store: bool = False) -> Sequence:
        """How likely a given continuation is after a prompt.

        Returns a sequence whose chunks bring the continuation's tokens, each with the natural logarithm of its
        probability after all that is before it, and `top` alternatives. The prompt is one of `prompt`, `messages`
        and `ids`, as for run(); the continuation is a text, tokenized by itself, or `continuation_ids`.

            sum(sum(chunk.logprobs) for chunk in connection.score("Once upon a", " time"))
        """
        before = _prompt(prompt, messages, ids, None, None, text_flags(special, bos))
        if (continuation is None) == (continuation_ids is None):
            raise InvalidArgument("give exactly one of continuation and continuation_ids")
        scored = make_prompt(text=continuation, ids=continuation_ids, flags=text_flags(special, False))
        options: Options = {"logprobs": top, "priority": priority, "nice": nice, "no_store": no_store}
        if deadline is not None:
            options["deadline"] = deadline
        sampling = make_sampling(options)
        sequence, error = ctypes.c_void_p(), ctypes.c_void_p()
        with self._handle.use() as pointer:
            status = _c.lib.inferd_score(pointer, ctypes.byref(before), ctypes.byref(scored), ctypes.byref(sampling),
                                         ctypes.byref(sequence), ctypes.byref(error))
            check(status, error)
            return self._adopt(sequence, options, branch_numbers(sampling.branch))

    # ---- cached prefixes ----

    def pin(self, prompt: Optional[str] = None, *, messages: Optional[str | abc.Sequence[Message]] = None,
            ids: Optional[abc.Iterable[int]] = None, tools: Optional[Tools] = None,
            variables: Optional[abc.Mapping[str, Any]] = None, special: bool = False, bos: bool = True) -> int:
        """Pins a prompt: what is cached of its whole pages (16 tokens each) leaves memory and disk after all that is
        not pinned. Returns how many of its tokens are pinned then. The prompt is as run()'s.

        Run it before (max_tokens=1 is enough): what is not cached raises NotFound. ResourceExhausted where the user
        would have more pinned than [limits] user_pinned_pages allows. A pin is its user's: it lasts until unpin(),
        also when the connection is closed. Blocks for the daemon's answer, which comes between two steps.
        """
        request = _prompt(prompt, messages, ids, tools, variables, text_flags(special, bos))
        tokens, error = ctypes.c_uint32(), ctypes.c_void_p()
        with self._handle.use() as pointer:
            check(_c.lib.inferd_pin(pointer, ctypes.byref(request), ctypes.byref(tokens), ctypes.byref(error)), error)
        return tokens.value

    def unpin(self) -> int:
        """Ends all pins of this user, whoever of their programs made them. Returns of how many tokens."""
        tokens, error = ctypes.c_uint32(), ctypes.c_void_p()
        with self._handle.use() as pointer:
            check(_c.lib.inferd_unpin(pointer, ctypes.byref(tokens), ctypes.byref(error)), error)
        return tokens.value

    # ---- after the daemon was gone ----

    def reconnect(self, timeout: float = 60) -> Connection:
        """Connects again as this connection had been connected, and tries for up to `timeout` seconds while nobody
        answers. This one stays open, so that its sequences can be resumed; close it afterwards."""
        end = time.monotonic() + milliseconds("timeout", timeout) / 1000
        while True:
            again, error = ctypes.c_void_p(), ctypes.c_void_p()
            try:
                with self._handle.use() as pointer:  # for a moment, so that Ctrl-C comes through
                    status = _c.lib.inferd_reconnect(pointer, 100, ctypes.byref(again), ctypes.byref(error))
                    check(status, error)
                assert again.value is not None
                return Connection(again.value)
            except (Unavailable, TimedOut):
                if time.monotonic() >= end:
                    raise

    def resume(self, lost: Sequence) -> Sequence:
        """The rest of a sequence of another connection that was lost with it: one that raised Unavailable.

        Its chunks are those that would have come, whatever the model draws: both sequences' together are the
        whole. The daemon computes what it has not cached. VersionMismatch if another model answers now.
        """
        sequence, error = ctypes.c_void_p(), ctypes.c_void_p()
        with lost._connection._handle.use(), lost._handle.use() as pointer, self._handle.use() as own:
            check(_c.lib.inferd_resume(own, pointer, ctypes.byref(sequence), ctypes.byref(error)), error)
            return self._adopt(sequence, lost._options, lost._branches)

    def _adopt(self, pointer: ctypes.c_void_p, options: Options, branches: abc.Iterator[int]) -> Sequence:
        """With the connection in use, so that close() finds the new sequence."""
        assert pointer.value is not None
        sequence = Sequence(self, pointer.value, options, branches)
        self._sequences.add(sequence)
        return sequence

    # ---- text ----

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """The token ids of a text. `special`, `bos`: as run()'s, but off."""
        data = utf8("text", text)
        with self._handle.use() as pointer:
            return _ids_from(_c.lib.inferd_tokenize, pointer, data, len(data), text_flags(special, bos))

    def detokenize(self, ids: abc.Iterable[int], *, special: bool = False) -> str:
        """The text of token ids. With `special`, control tokens are written out by name."""
        return self.detokenize_bytes(ids, special=special).decode("utf-8", "replace")

    def detokenize_bytes(self, ids: abc.Iterable[int], *, special: bool = False) -> bytes:
        """As detokenize(), with bytes that are no UTF-8 as they are."""
        given = id_array(ids)
        text, size, error = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_void_p()
        with self._handle.use() as pointer:
            check(_c.lib.inferd_detokenize(pointer, given, len(given) - 1, int(special), ctypes.byref(text),
                                           ctypes.byref(size), ctypes.byref(error)), error)
        try:
            return ctypes.string_at(text, size.value)
        finally:
            _c.lib.inferd_free(text)

    def render_chat(self, messages: str | abc.Sequence[Message], *, tools: Optional[Tools] = None,
                    variables: Optional[abc.Mapping[str, Any]] = None) -> list[int]:
        """The prompt that run(messages=...) would submit, as token ids. Only what the model's template writes can
        become control tokens, whatever the messages say."""
        data = chat_json(messages, tools, variables)
        with self._handle.use() as pointer:
            return _ids_from(_c.lib.inferd_render_chat, pointer, data, len(data))

    # ---- event loops other than asyncio's ----

    def fileno(self) -> int:
        """A descriptor that polls readable when chunks may be waiting. On readable call clear(), then poll() on each
        sequence until it returns None. Do not read or close it."""
        with self._handle.use() as pointer:
            return int(_c.lib.inferd_connection_fd(pointer))

    def clear(self) -> None:
        """See fileno()."""
        with self._handle.use() as pointer:
            _c.lib.inferd_connection_clear(pointer)

    # ---- end ----

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._handle.closed

    def close(self) -> None:
        """Ends its sequences and frees everything. Threads and tasks that wait for them get InvalidArgument."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<inferd.Connection to %s%s>" % (self._model.name, ", closed" if self.closed else "")

    def _read_models(self) -> abc.Iterator[Model]:
        info = _c.ModelInfo(struct_bytes=ctypes.sizeof(_c.ModelInfo))
        for index in itertools.count():
            error = ctypes.c_void_p()
            with self._handle.use() as pointer:
                status = _c.lib.inferd_get_model_at(pointer, index, ctypes.byref(info), ctypes.byref(error))
                if status == Status.NOT_FOUND and not error.value:
                    return
                check(status, error)
                yield _model_from(info)


def _model_from(info: _c.ModelInfo) -> Model:
    """With the connection in use: the strings are its."""
    values = {field.name: getattr(info, field.name) for field in dataclasses.fields(Model)}
    for name, value in values.items():
        if isinstance(value, bytes):
            values[name] = value.decode("utf-8", "replace")
    for name in ("bos_token", "eos_token"):
        values[name] = values[name] if values[name] >= 0 else None
    for name in ("has_chat_template", "in_use"):
        values[name] = bool(values[name])
    return Model(**values)


def _prompt(text: Optional[str], messages: Optional[str | abc.Sequence[Message]],
            ids: Optional[abc.Iterable[int]], tools: Optional[Tools], variables: Optional[abc.Mapping[str, Any]],
            flags: int) -> _c.Prompt:
    """What run() and others take as their prompt."""
    if messages is None and (tools is not None or variables is not None):
        raise InvalidArgument("tools and variables go with messages")
    chat = chat_json(messages, tools, variables) if messages is not None else None
    return make_prompt(text=text, chat=chat, ids=ids, flags=flags)


def _ids_from(function: abc.Callable[..., int], *arguments: Any) -> list[int]:
    ids, count, error = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t(), ctypes.c_void_p()
    check(function(*arguments, ctypes.byref(ids), ctypes.byref(count), ctypes.byref(error)), error)
    try:
        return ids[:count.value]
    finally:
        _c.lib.inferd_free(ids)


def _disconnect(handle: Handle, sequences: abc.Iterable[Sequence], watcher: Watcher) -> None:
    """Frees the connection once no call goes on, of its own or of one of its sequences."""
    pointer = handle.retire()
    if pointer is None:
        return
    busy = False
    for sequence in list(sequences):
        sequence._handle.retire()
        busy = busy or sequence._handle.in_use
    watcher.wake_from_outside()
    if not busy:
        _c.lib.inferd_disconnect(pointer)
