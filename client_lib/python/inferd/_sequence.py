"""A sequence: a prompt, and its answer as it comes."""

from __future__ import annotations

import codecs
import collections.abc as abc
import ctypes
import dataclasses
import itertools
import threading
import time
import weakref
from typing import TYPE_CHECKING, Literal, NamedTuple, Optional, Self, Unpack

from . import _c
from ._errors import Error, InvalidArgument, Status, check, make_error
from ._handle import Handle
from ._options import (
    Options, Priority, make_prompt, make_sampling, milliseconds, priority_number, shows_options, signed, text_flags)

if TYPE_CHECKING:
    from ._connection import Connection

FinishReason = Literal["stop", "length", "context", "cancelled", "error"]

# A wait in the library lasts no longer, so that Ctrl-C and close() from another thread come through. What
# arrives ends it at once.
_SLICE_MS = 100


class TokenLogprob(NamedTuple):
    """One of a token's alternatives."""

    id: int
    logprob: float


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What came at once: zero or more tokens, and the text that they complete.

    Text never ends inside a character; all texts together are the text of all ids together.
    """

    text: str
    ids: tuple[int, ...]
    logprobs: Optional[tuple[float, ...]] = None  # of each id; None if not asked for
    top: Optional[tuple[tuple[TokenLogprob, ...], ...]] = None  # of each id: alternatives, likely first
    finish_reason: Optional[FinishReason] = None  # in the last chunk only


@dataclasses.dataclass(frozen=True)
class Usage:
    """Figures of a sequence so far; final after its last chunk."""

    prompt_tokens: int
    cached_tokens: int  # of the prompt's, those not computed for this request
    completion_tokens: int
    ttft_ms: float  # from submission to the first token's arrival; 0 before
    itl_ms: float  # mean time between tokens; 0 with fewer than two
    queue_ms: float  # from submission to the first step that worked on it; told at the end
    computed_tokens: int  # those computed again after a preemption included; told at the end
    preemptions: int  # how often it gave its memory back and went on later; told at the end


class Sequence(abc.Iterator[Chunk], abc.AsyncIterator[Chunk]):
    """The answer to one prompt. Made by Connection.run() and by fork().

    Iterate over it for chunks as they come, with `for` in any thread or `async for` in an event loop; or call
    text() for the whole. One reader at a time; cancel(), fork() and usage from any thread. It is closed, and
    cancelled if it still runs, by close(), by a `with` block's end, or when it is no longer referred to.
    """

    def __init__(self, connection: Connection, pointer: int, options: Options, branches: abc.Iterator[int]) -> None:
        self._connection = connection
        self._handle = Handle(pointer, "sequence")
        self._options = options
        self._branches = branches  # numbers that no other of the family has
        self._reading = threading.Lock()
        self._event = _c.prepared(_c.Event(), "inferd_event_init_sized")
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._finish: Optional[FinishReason] = None
        self._failure: Optional[Error] = None
        self._usage: Optional[Usage] = None  # the final one
        self._finalizer = weakref.finalize(self, _close, self._handle, connection._handle)

    # ---- reading ----

    def __iter__(self) -> Sequence:
        return self

    def __next__(self) -> Chunk:
        """Waits for the next chunk. A sequence that fails raises its error, then and whenever it is asked again."""
        while not self._over():
            chunk = self._take(_SLICE_MS)
            if chunk is not None:
                return chunk
        raise StopIteration

    def __aiter__(self) -> Sequence:
        return self

    async def __anext__(self) -> Chunk:
        """As __next__(), while other tasks of the event loop run."""
        while not self._over():
            chunk = self._take(0)
            if chunk is not None:
                return chunk
            await self._connection._watcher.wait()
        raise StopAsyncIteration

    def poll(self, timeout: float = 0) -> Optional[Chunk]:
        """The next chunk if it comes within `timeout` seconds, else None; also None after the last one."""
        end_ms = time.monotonic() * 1000 + (milliseconds("timeout", timeout) if timeout != 0 else 0)
        while not self._over():
            left_ms = end_ms - time.monotonic() * 1000
            chunk = self._take(int(min(_SLICE_MS, max(0, left_ms))))
            if chunk is not None or left_ms <= 0:
                return chunk
        return None

    def text(self) -> str:
        """Waits for the end. The whole answer, with what was iterated over before."""
        for _ in self:
            pass
        return self.text_so_far

    async def text_async(self) -> str:
        """As text(), while other tasks of the event loop run."""
        async for _ in self:
            pass
        return self.text_so_far

    @property
    def text_so_far(self) -> str:
        """The text of all chunks that were read."""
        return "".join(self._texts)

    @property
    def ids(self) -> tuple[int, ...]:
        """The token ids of all chunks that were read."""
        return tuple(self._ids)

    @property
    def finish_reason(self) -> Optional[FinishReason]:
        """Why it ended: None until the last chunk was read, "error" if it failed."""
        return self._finish

    @property
    def usage(self) -> Usage:
        """Its figures so far."""
        return self._usage or self._read_usage()

    # ---- changing ----

    @shows_options
    def fork(self, more: Optional[str] = None, *, ids: Optional[abc.Iterable[int]] = None, special: bool = False,
             **options: Unpack[Options]) -> Sequence:
        """Another sequence that goes on from what was read of this one, then with `more` text or `ids`.

        The two share the memory and the computation of all that they have in common; this one goes on unharmed.
        Options that are not given are this one's, but for `branch`, which is a new number, so that samples draw
        apart. Several samples of one prompt: run(), then fork() before reading. `special`: as run()'s.
        """
        chosen: Options = {**self._options, "branch": next(self._branches), **options}
        sampling = make_sampling(chosen)
        prompt = None
        if more is not None or ids is not None:
            prompt = make_prompt(text=more, ids=ids, flags=text_flags(special, False))
        child, error = ctypes.c_void_p(), ctypes.c_void_p()
        with self._connection._handle.use(), self._handle.use() as pointer:
            status = _c.lib.inferd_sequence_fork(pointer, ctypes.byref(prompt) if prompt else None,
                                                 ctypes.byref(sampling), ctypes.byref(child), ctypes.byref(error))
            check(status, error)
            return self._connection._adopt(child, chosen, self._branches)

    def renice(self, *, priority: Optional[Priority] = None, nice: Optional[int] = None) -> None:
        """Changes how urgent it is while it waits or runs; what is not given stays as this program set it.

        Making it more urgent takes root or the daemon's user (PermissionDenied). NotFound if it has ended. Blocks
        until the daemon has finished the step that it is in.
        """
        chosen: Options = {**self._options}
        if priority is not None:
            chosen["priority"] = priority
        if nice is not None:
            chosen["nice"] = nice
        number = priority_number(chosen.get("priority", "interactive"))
        niceness, error = signed("nice", chosen.get("nice", 0)), ctypes.c_void_p()
        with self._handle.use() as pointer:
            check(_c.lib.inferd_renice(pointer, number, niceness, ctypes.byref(error)), error)
        self._options = chosen

    def cancel(self) -> None:
        """Asks the daemon to stop it. It then ends with finish_reason "cancelled", unless it had ended."""
        if not self._handle.closed:
            with self._handle.use() as pointer:
                _c.lib.inferd_cancel(pointer)

    def close(self) -> None:
        """Frees it, and cancels it if it still runs. What was read of it stays readable."""
        if not self._handle.closed and not self._handle.foreign:
            self._usage = self.usage
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<inferd.Sequence of %d tokens, %s>" % (len(self._ids), self._finish or "running")

    # ---- inside ----

    def _over(self) -> bool:
        if self._failure is not None:
            raise self._failure
        return self._finish is not None

    def _take(self, timeout_ms: int) -> Optional[Chunk]:
        """The next chunk; None if there is none yet."""
        error = ctypes.c_void_p()
        with self._reading, self._handle.use() as pointer:
            if self._finish is not None:  # another thread has read the last one
                return None
            status = _c.lib.inferd_next(pointer, timeout_ms, ctypes.byref(self._event), ctypes.byref(error))
            if status == 0:
                chunk = self._absorb()
                if self._finish is not None:
                    self._usage = self._read_usage()
                return chunk
            if status == Status.TIMED_OUT and error.value is None:
                return None
            self._failure = make_error(status, error)
            self._finish = "error"
            self._usage = self._read_usage()
        raise self._failure

    def _absorb(self) -> Chunk:
        """Copies the event, whose memory is the library's and valid until the next call."""
        event = self._event
        last = event.finish != 0
        text = self._decoder.decode(ctypes.string_at(event.text, event.text_bytes) if event.text_bytes else b"", last)
        count, width = event.ids_count, event.top_logprobs_count
        ids = tuple(event.ids[:count]) if count else ()
        logprobs = top = None
        if event.logprobs:
            logprobs = tuple([event.logprobs[i].logprob for i in range(count)])
        if event.top_logprobs:
            rows = [TokenLogprob(event.top_logprobs[i].token, event.top_logprobs[i].logprob)
                    for i in range(count * width)]
            top = tuple([tuple(rows[i * width:(i + 1) * width]) for i in range(count)])
        self._texts.append(text)
        self._ids.extend(ids)
        reason = _c.lib.inferd_finish_name(event.finish).decode() if last else None
        chunk = Chunk(text, ids, logprobs, top, reason)
        self._finish = reason
        return chunk

    def _read_usage(self) -> Usage:
        usage = _c.Usage(struct_bytes=ctypes.sizeof(_c.Usage))
        error = ctypes.c_void_p()
        with self._handle.use() as pointer:
            check(_c.lib.inferd_get_usage(pointer, ctypes.byref(usage), ctypes.byref(error)), error)
        return Usage(**{field.name: getattr(usage, field.name) for field in dataclasses.fields(Usage)})


def branch_numbers(first: int) -> abc.Iterator[int]:
    """For the forks of a sequence whose branch is `first`."""
    return itertools.count(first + 1)


def _close(sequence: Handle, connection: Handle) -> None:
    pointer = sequence.retire()
    if pointer is None:
        return
    try:
        with connection.use():
            _c.lib.inferd_close(pointer)
    except InvalidArgument:
        pass  # closing the connection frees what is left of its sequences
