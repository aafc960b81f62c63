"""Exceptions: one class for each status of the library, and what turns the one into the other."""

from __future__ import annotations

import ctypes
import enum

from . import _c


class Status(enum.IntEnum):
    """What kind of failure it was: the numbers of inferd_status in the C interface."""

    INVALID_ARGUMENT = 1
    NOT_FOUND = 2
    PERMISSION_DENIED = 3
    RESOURCE_EXHAUSTED = 4
    UNAVAILABLE = 5
    DATA_CORRUPT = 6
    UNSUPPORTED = 7
    CANCELLED = 8
    TIMED_OUT = 9
    IO = 10
    INTERNAL = 11
    PROTOCOL = 12
    VERSION_MISMATCH = 13


class Error(Exception):
    """Something failed. str() of it is a sentence that says what, and what to do; `code` is for programs."""

    code: Status = Status.INTERNAL


class InvalidArgument(Error, ValueError):
    """What was asked for makes no sense; the sentence names the argument."""

    code = Status.INVALID_ARGUMENT


class NotFound(Error):
    """There is no model or cache domain of that name."""

    code = Status.NOT_FOUND


class PermissionDenied(Error):
    """This user may not connect, or not ask for that."""

    code = Status.PERMISSION_DENIED


class ResourceExhausted(Error):
    """It does not fit, now or ever: the sentence has the limit."""

    code = Status.RESOURCE_EXHAUSTED


class Unavailable(Error):
    """No daemon answers, or it went away. Connect again once it is back."""

    code = Status.UNAVAILABLE


class DataCorrupt(Error):
    """What was read is damaged."""

    code = Status.DATA_CORRUPT


class Unsupported(Error):
    """The daemon or the library in use cannot do that; a newer one may."""

    code = Status.UNSUPPORTED


class Cancelled(Error):
    """The work was cancelled before it could answer."""

    code = Status.CANCELLED


class TimedOut(Error):
    """A deadline or a timeout passed."""

    code = Status.TIMED_OUT


class InputOutput(Error):
    """The operating system refused to read or write."""

    code = Status.IO


class Internal(Error):
    """A fault of inferd's own."""

    code = Status.INTERNAL


class Protocol(Error):
    """The two sides do not understand each other."""

    code = Status.PROTOCOL


class VersionMismatch(Error):
    """The library and the daemon are of versions that do not fit together."""

    code = Status.VERSION_MISMATCH


_CLASSES: dict[int, type[Error]] = {
    int(cls.code): cls
    for cls in (InvalidArgument, NotFound, PermissionDenied, ResourceExhausted, Unavailable, DataCorrupt, Unsupported,
                Cancelled, TimedOut, InputOutput, Internal, Protocol, VersionMismatch)}


def make_error(status: int, error: ctypes.c_void_p) -> Error:
    """The exception for a failed call. Takes over the library's error object (which may be NULL)."""
    message = _c.lib.inferd_error_message(error) or _c.lib.inferd_status_name(status)
    _c.lib.inferd_error_free(error)
    return _CLASSES.get(status, Internal)(message.decode("utf-8", "replace"))


def check(status: int, error: ctypes.c_void_p) -> None:
    """Raises what a call returned, unless that is success."""
    if status != 0:
        raise make_error(status, error)
