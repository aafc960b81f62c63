"""What a request may ask for, and its way into the library's structures.

Numbers are checked against the range of their C type, which ctypes would silently cut them to; whether they
make sense is for the library and the daemon to say.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Optional, TypedDict, TypeVar

from . import _c
from ._errors import InvalidArgument

Priority = Literal["interactive", "batch", "idle"]
_PRIORITIES = ("interactive", "batch", "idle")


def priority_number(priority: Any) -> int:
    """What the library calls it."""
    if priority not in _PRIORITIES:
        raise InvalidArgument("priority must be one of %s, not %r" % (", ".join(_PRIORITIES), priority))
    return _PRIORITIES.index(priority)



Message = Mapping[str, Any]


class Options(TypedDict, total=False):
    """How to continue a prompt, and how urgently. What is not given has the library's default."""

    max_tokens: Optional[int]  # None (the default): up to the context's end
    temperature: float  # 0 (the default): greedy
    seed: int  # equal seeds give equal tokens
    branch: int  # several samples of one prompt: number them, they draw apart
    top_k: int  # 0 (the default): off
    top_p: float  # 1 (the default): off
    min_p: float  # 0 (the default): off
    repetition_penalty: float  # 1 (the default): off
    presence_penalty: float  # 0 (the default): off
    frequency_penalty: float  # 0 (the default): off
    penalty_last_n: int  # window of the penalties, in tokens; 64 by default
    stop: Sequence[str]  # texts that end the answer and are not part of it; at most 16
    logprobs: Optional[int]  # report each token's log probability, and so many alternatives (0 to 20)
    logit_bias: Mapping[int, float]  # token: added to its logit, -math.inf forbids it; at most 256
    ignore_eos: bool  # go on past the model's end-of-answer tokens
    priority: Priority  # "interactive" (the default), "batch" or "idle"
    nice: int  # within the priority, -20 (first) to 19; below 0 only for root and the daemon's user
    deadline: Optional[float]  # seconds; TimedOut if it has not started by then
    no_store: bool  # take nothing from the prefix cache and leave nothing in it


_F = TypeVar("_F", bound=Callable[..., Any])


def shows_options(function: _F) -> _F:
    """Lets help(), completion in a notebook and inspect.signature() show each option of `function(**options)`."""
    signature = inspect.signature(function)
    kept = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    hints = Options.__annotations__
    shown = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=hint.__forward_arg__)
             for name, hint in hints.items()]
    function.__signature__ = signature.replace(parameters=kept + shown)  # type: ignore[attr-defined]
    return function


def _unsigned(name: str, value: Any, bits: int = 32) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << bits:
        raise InvalidArgument("%s must be a whole number from 0 to %d, not %r" % (name, (1 << bits) - 1, value))
    return int(value)


def signed(name: str, value: Any) -> int:
    if not isinstance(value, int) or not -1 << 31 <= value < 1 << 31:
        raise InvalidArgument("%s must be a whole number of 32 bits, not %r" % (name, value))
    return int(value)


def milliseconds(name: str, seconds: Any) -> int:
    """At least 1, as 0 means something else to the library."""
    if not isinstance(seconds, (int, float)) or not 0 < seconds < (1 << 32) / 1000 - 1:
        raise InvalidArgument("%s must be a number of seconds above 0 and below 49 days, not %r" % (name, seconds))
    return max(1, math.ceil(seconds * 1000))


def encoded(name: str, text: Any) -> bytes:
    """For C strings that end at a zero byte."""
    if not isinstance(text, str):
        raise InvalidArgument("%s must be a str, not %r" % (name, text))
    if "\0" in text:
        raise InvalidArgument("%s has a zero byte in it" % name)
    return utf8(name, text)


def utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument("%s has half of a surrogate pair in it, which is no text" % name) from None


def id_array(ids: Iterable[int]) -> ctypes.Array[ctypes.c_int32]:
    """Token ids as the library takes them. One longer than `ids`, so that none at all has an address too."""
    try:
        checked = array("i", ids)
    except (TypeError, OverflowError) as error:
        raise InvalidArgument("ids must be token ids, whole numbers: %s" % error) from None
    return (ctypes.c_int32 * (len(checked) + 1)).from_buffer_copy(checked.tobytes() + bytes(4))


_FLOATS = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_UNSIGNED = {"top_k": 32, "penalty_last_n": 32, "seed": 64, "branch": 32}
_FLAGS = ("ignore_eos", "no_store")


def make_sampling(options: Options) -> _c.Sampling:
    """The library's structure for `options`; keeps alive what it points at."""
    given: dict[str, Any] = dict(options)
    unknown = sorted(set(given) - set(Options.__annotations__))
    if unknown:
        raise TypeError("there is no option %r; there are %s" % (unknown[0], ", ".join(Options.__annotations__)))
    sampling = _c.prepared(_c.Sampling(), "inferd_sampling_init_sized")
    for name, value in given.items():
        if name in _FLOATS:
            if not isinstance(value, (int, float)):
                raise InvalidArgument("%s must be a number, not %r" % (name, value))
            setattr(sampling, name, value)
        elif name in _UNSIGNED:
            setattr(sampling, name, _unsigned(name, value, _UNSIGNED[name]))
        elif name in _FLAGS:
            setattr(sampling, name, bool(value))
    if given.get("max_tokens") is not None:
        sampling.max_tokens = _unsigned("max_tokens", given["max_tokens"])
    if given.get("logprobs") is not None:
        sampling.logprobs = 1
        sampling.top_logprobs = _unsigned("logprobs", given["logprobs"])
    if given.get("deadline") is not None:
        sampling.deadline_ms = milliseconds("deadline", given["deadline"])
    if "nice" in given:
        sampling.nice = signed("nice", given["nice"])
    if "priority" in given:
        sampling.priority = priority_number(given["priority"])
    _set_lists(sampling, given.get("stop") or (), given.get("logit_bias") or {})
    return sampling


def _set_lists(sampling: _c.Sampling, stop: Sequence[str], bias: Mapping[int, float]) -> None:
    texts = [encoded("stop", text) for text in ([stop] if isinstance(stop, str) else stop)]
    # A ctypes structure keeps alive the arrays that are assigned to its pointers.
    sampling.stop = (ctypes.c_char_p * len(texts))(*texts)
    sampling.stop_count = len(texts)
    rows = [_c.LogitBias(signed("a token of logit_bias", token), value) for token, value in bias.items()]
    sampling.logit_bias = (_c.LogitBias * len(rows))(*rows)
    sampling.logit_bias_count = len(rows)


def chat_json(messages: str | Sequence[Message], tools: Optional[Sequence[Mapping[str, Any]]],
              variables: Optional[Mapping[str, Any]]) -> bytes:
    """What the library calls chat_json."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    chat: dict[str, Any] = {"messages": list(messages), **(variables or {})}
    if tools is not None:
        chat["tools"] = list(tools)
    try:
        return utf8("messages", json.dumps(chat, ensure_ascii=False))
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument("messages, tools and variables must be what JSON can hold: %s" % error) from None


def text_flags(special: bool, bos: bool) -> int:
    return (_c.TOKENIZE_SPECIAL if special else 0) | (_c.TOKENIZE_BOS if bos else 0)


def make_prompt(text: Optional[str] = None, chat: Optional[bytes] = None, ids: Optional[Iterable[int]] = None,
                flags: int = 0) -> _c.Prompt:
    """The library's structure for exactly one of the three; keeps alive what it points at."""
    given = [name for name, value in (("prompt", text), ("messages", chat), ("ids", ids)) if value is not None]
    if len(given) != 1:
        raise InvalidArgument("give exactly one of prompt, messages and ids" +
                              (", not both %s" % " and ".join(given) if given else ""))
    prompt = _c.prepared(_c.Prompt(), "inferd_prompt_init_sized")
    if text is not None:
        if not isinstance(text, str):
            raise InvalidArgument("the prompt must be a str, not %r; token ids go to ids=" % type(text).__name__)
        data = utf8("the prompt", text)
        prompt.text = data
        prompt.text_bytes = len(data)
        prompt.text_flags = flags
    elif chat is not None:
        prompt.chat_json = chat
        prompt.chat_json_bytes = len(chat)
    else:
        array_of_ids = id_array(ids or ())
        prompt.ids = array_of_ids
        prompt.ids_count = len(array_of_ids) - 1
    return prompt
