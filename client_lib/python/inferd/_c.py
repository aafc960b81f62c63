"""The C interface of libinferd as ctypes sees it: every structure and every function, once.

Mirrors client_lib/include/inferd/inferd.h. The unit tests compare sizes and offsets with what a C compiler
makes of that header, and the names of the functions with those that it declares. Nothing here decides
anything; the rest of the package is written on top.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p)
from typing import TypeVar

# The name carries the version of the binary interface: a library of another one has another name.
LIBRARY = "libinferd.so.0"

TOKENIZE_SPECIAL = 1
TOKENIZE_BOS = 2
UNLIMITED_TOKENS = 0xFFFFFFFF


class ConnectOptions(Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("socket_path", c_char_p),
        ("model", c_char_p),
        ("client_name", c_char_p),
        ("timeout_ms", c_uint32),
        ("spin_us", c_uint32),
        ("cache_domain", c_char_p),
    ]


class ModelInfo(Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        ("architecture", c_char_p),
        ("quantization", c_char_p),
        ("numerics_id", c_char_p),
        ("parameters", c_uint64),
        ("vocabulary", c_uint32),
        ("context_tokens", c_uint32),
        ("bos_token", c_int32),
        ("eos_token", c_int32),
        ("has_chat_template", c_int),
        ("in_use", c_int),
    ]


class Prompt(Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("text", c_char_p),
        ("text_bytes", c_size_t),
        ("text_flags", c_uint32),
        ("chat_json", c_char_p),
        ("chat_json_bytes", c_size_t),
        ("ids", POINTER(c_int32)),
        ("ids_count", c_size_t),
    ]


class LogitBias(Structure):
    _fields_ = [("token", c_int32), ("bias", c_float)]


class Sampling(Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("temperature", c_float),
        ("top_k", c_uint32),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("penalty_last_n", c_uint32),
        ("seed", c_uint64),
        ("branch", c_uint32),
        ("logit_bias", POINTER(LogitBias)),
        ("logit_bias_count", c_size_t),
        ("stop", POINTER(c_char_p)),
        ("stop_count", c_size_t),
        ("max_tokens", c_uint32),
        ("logprobs", c_int),
        ("top_logprobs", c_uint32),
        ("ignore_eos", c_int),
        ("priority", c_uint32),
        ("nice", c_int32),
        ("deadline_ms", c_uint32),
        ("no_store", c_int),
    ]


class Logprob(Structure):
    _fields_ = [("token", c_int32), ("logprob", c_float)]


class Event(Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("text", c_void_p),  # has a size and may hold zero bytes: no c_char_p
        ("text_bytes", c_size_t),
        ("ids", POINTER(c_int32)),
        ("ids_count", c_size_t),
        ("logprobs", POINTER(Logprob)),
        ("top_logprobs", POINTER(Logprob)),
        ("top_logprobs_count", c_size_t),
        ("finish", c_int),
    ]


class Usage(Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("prompt_tokens", c_uint32),
        ("cached_tokens", c_uint32),
        ("completion_tokens", c_uint32),
        ("ttft_ms", c_double),
        ("itl_ms", c_double),
        ("queue_ms", c_double),
        ("computed_tokens", c_uint32),
        ("preemptions", c_uint32),
    ]


# What the header calls each structure.
STRUCTURES = {
    "inferd_connect_options": ConnectOptions,
    "inferd_model_info": ModelInfo,
    "inferd_prompt": Prompt,
    "inferd_logit_bias": LogitBias,
    "inferd_sampling": Sampling,
    "inferd_logprob": Logprob,
    "inferd_event": Event,
    "inferd_usage": Usage,
}

# Handles (inferd_connection, inferd_sequence, inferd_error) are void pointers here.
_ERROR_OUT = POINTER(c_void_p)
_HANDLE_OUT = POINTER(c_void_p)
_IDS = POINTER(c_int32)
_IDS_OUT = POINTER(_IDS)
_SIZE_OUT = POINTER(c_size_t)

# Name: (result, arguments), in the order of the header.
FUNCTIONS = {
    "inferd_version": (c_char_p, []),
    "inferd_error_status": (c_int, [c_void_p]),
    "inferd_error_message": (c_char_p, [c_void_p]),
    "inferd_error_free": (None, [c_void_p]),
    "inferd_status_name": (c_char_p, [c_int]),
    "inferd_connect_options_init_sized": (None, [POINTER(ConnectOptions), c_size_t]),
    "inferd_connect": (c_int, [POINTER(ConnectOptions), _HANDLE_OUT, _ERROR_OUT]),
    "inferd_reconnect": (c_int, [c_void_p, c_uint32, _HANDLE_OUT, _ERROR_OUT]),
    "inferd_disconnect": (None, [c_void_p]),
    "inferd_get_model_info": (c_int, [c_void_p, POINTER(ModelInfo), _ERROR_OUT]),
    "inferd_get_model_at": (c_int, [c_void_p, c_size_t, POINTER(ModelInfo), _ERROR_OUT]),
    "inferd_connection_fd": (c_int, [c_void_p]),
    "inferd_connection_clear": (None, [c_void_p]),
    "inferd_tokenize": (c_int, [c_void_p, c_char_p, c_size_t, c_uint32, _IDS_OUT, _SIZE_OUT, _ERROR_OUT]),
    "inferd_detokenize": (c_int, [c_void_p, _IDS, c_size_t, c_int, _HANDLE_OUT, _SIZE_OUT, _ERROR_OUT]),
    "inferd_render_chat": (c_int, [c_void_p, c_char_p, c_size_t, _IDS_OUT, _SIZE_OUT, _ERROR_OUT]),
    "inferd_free": (None, [c_void_p]),
    "inferd_prompt_init_sized": (None, [POINTER(Prompt), c_size_t]),
    "inferd_sampling_init_sized": (None, [POINTER(Sampling), c_size_t]),
    "inferd_open": (c_int, [c_void_p, POINTER(Prompt), POINTER(Sampling), _HANDLE_OUT, _ERROR_OUT]),
    "inferd_sequence_fork": (c_int, [c_void_p, POINTER(Prompt), POINTER(Sampling), _HANDLE_OUT, _ERROR_OUT]),
    "inferd_open_samples": (
        c_int, [c_void_p, POINTER(Prompt), POINTER(Sampling), c_size_t, POINTER(c_void_p), _ERROR_OUT]),
    "inferd_score": (
        c_int, [c_void_p, POINTER(Prompt), POINTER(Prompt), POINTER(Sampling), _HANDLE_OUT, _ERROR_OUT]),
    "inferd_resume": (c_int, [c_void_p, c_void_p, _HANDLE_OUT, _ERROR_OUT]),
    "inferd_renice": (c_int, [c_void_p, c_uint32, c_int32, _ERROR_OUT]),
    "inferd_pin": (c_int, [c_void_p, POINTER(Prompt), POINTER(c_uint32), _ERROR_OUT]),
    "inferd_unpin": (c_int, [c_void_p, POINTER(c_uint32), _ERROR_OUT]),
    "inferd_cancel": (None, [c_void_p]),
    "inferd_close": (None, [c_void_p]),
    "inferd_finish_name": (c_char_p, [c_int]),
    "inferd_event_init_sized": (None, [POINTER(Event), c_size_t]),
    "inferd_next": (c_int, [c_void_p, c_int, POINTER(Event), _ERROR_OUT]),
    "inferd_get_usage": (c_int, [c_void_p, POINTER(Usage), _ERROR_OUT]),
}


def load(bundled: str = os.path.join(os.path.dirname(os.path.abspath(__file__)), LIBRARY)) -> ctypes.CDLL:
    """The library that came in the wheel, at `bundled`; without one, the system's. ImportError says why not."""
    path = bundled if os.path.exists(bundled) else LIBRARY
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        if path == bundled:
            advice = "it needs libstdc++6 and libpcre2-8-0: 'sudo apt install libstdc++6 libpcre2-8-0'"
        else:
            advice = ("install the wheel that inferd's build makes, which brings it along, or install the library "
                      "('cmake --install BUILD --component client', then 'ldconfig'; or set LD_LIBRARY_PATH)")
        raise ImportError("cannot load %s: %s; %s" % (path, error, advice)) from None
    return declare(library, path)


def declare(library: ctypes.CDLL, path: str) -> ctypes.CDLL:
    """Gives the functions of `library` their types. ImportError if it lacks one."""
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError("%s has no %s(): it is older than this Python package; update the library, or install "
                              "the wheel of the same build" % (path, name)) from None
        function.restype = result
        function.argtypes = arguments
    return library


lib = load()


_S = TypeVar("_S", bound=Structure)


def prepared(structure: _S, init: str) -> _S:
    """`structure` with the library's defaults; `init` is what the header calls its function for that."""
    getattr(lib, init)(ctypes.byref(structure), ctypes.sizeof(structure))
    return structure
