"""Handles of the C library that no thread can use after they were closed.

The library frees what it is told to close, whoever still uses it. So each call into it is counted while it
lasts, and closing waits until none is left. Calls are short: those that wait do so in slices (see _sequence.py).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Optional

from ._errors import InvalidArgument

# Longer than any call takes: what is still counted then will not end (an exception hit its bookkeeping).
_PATIENCE_S = 10.0


class Handle:
    """An open handle. Any thread."""

    def __init__(self, pointer: int, what: str) -> None:
        self._pointer: Optional[int] = pointer
        self._what = what
        self._pid = os.getpid()
        self._users = 0
        # Its lock is reentrant: the garbage collector may close another handle in the middle of this code.
        self._changed = threading.Condition()

    @property
    def closed(self) -> bool:
        return self._pointer is None

    @property
    def in_use(self) -> bool:
        return self._users > 0

    @property
    def foreign(self) -> bool:
        """True in a child process after fork(), where the library must not be called with it."""
        return self._pid != os.getpid()

    @contextlib.contextmanager
    def use(self) -> Iterator[int]:
        """The pointer, which stays valid inside."""
        if self.foreign:  # before the lock, which a thread of the parent may have held at the fork
            raise InvalidArgument("the %s was opened by another process; after a fork, connect again" % self._what)
        with self._changed:
            if self._pointer is None:
                raise InvalidArgument("the %s is closed" % self._what)
            pointer = self._pointer
            self._users += 1
        try:
            yield pointer
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def retire(self) -> Optional[int]:
        """Closes it to further calls and waits for those that go on. The pointer, for the caller to free, or None
        if there is nothing to free (closed before, of another process, or in use for ever)."""
        if self.foreign:
            return None
        with self._changed:
            pointer, self._pointer = self._pointer, None
            idle = self._changed.wait_for(lambda: self._users == 0, _PATIENCE_S)
        return pointer if idle else None
