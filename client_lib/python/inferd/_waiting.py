"""Waiting in an asyncio event loop: one reader on the connection's descriptor, for all its sequences.

The library's rules (inferd_connection_fd() in inferd.h), and why no wake-up is lost:
1. A coroutine asks its sequence without waiting. That it got nothing has armed the descriptor.
2. Before anything else can run in the loop, it is among the waiters, and the loop watches the descriptor,
   which is level-triggered: what has come since 1 is seen.
3. On readable, the descriptor is cleared first, and then every waiter goes back to 1.
With nobody waiting the descriptor is not watched: after the daemon's end it stays readable for ever.
"""

from __future__ import annotations

import asyncio
import os
from typing import Optional

from . import _c
from ._errors import InvalidArgument
from ._handle import Handle


class Watcher:
    """Belongs to one connection; used in the thread of the event loop that waits, but for wake_from_outside()."""

    def __init__(self, connection: Handle) -> None:
        self._connection = connection
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._fd = -1

    async def wait(self) -> None:
        """Until something may have arrived for one of the connection's sequences, or it was closed."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._change_loop(loop)
        future: asyncio.Future[None] = loop.create_future()
        if not self._waiters:
            self._begin(loop)
        self._waiters.add(future)
        try:
            await future
        finally:
            self._waiters.discard(future)
            if not self._waiters:
                self._end()

    def wake_from_outside(self) -> None:
        """The connection was closed, by any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # closed meanwhile: nobody waits
                pass

    def _change_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and self._waiters:
            if not self._loop.is_closed():
                raise InvalidArgument("another event loop waits for this connection; give each loop one of its own")
            self._waiters.clear()
            self._end()
        self._loop = loop

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        # Its own copy of the descriptor: whoever closes the connection does not close this one.
        with self._connection.use() as pointer:
            self._fd = os.dup(_c.lib.inferd_connection_fd(pointer))
        loop.add_reader(self._fd, self._readable)

    def _end(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(fd)
        finally:
            os.close(fd)

    def _readable(self) -> None:
        try:
            with self._connection.use() as pointer:
                _c.lib.inferd_connection_clear(pointer)
        except InvalidArgument:
            pass  # closed: the waiters will see it
        self._wake()

    def _wake(self) -> None:
        for future in self._waiters:
            if not future.done():
                future.set_result(None)
