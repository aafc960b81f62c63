"""Language-model inference by the inferd daemon, from Python.

    import inferd

    with inferd.connect() as connection:
        for chunk in connection.run(messages="Why is the sea salty?"):
            print(chunk.text, end="", flush=True)

In an event loop, `async for` does the same while other tasks run. Everything that goes wrong raises a subclass of
inferd.Error, whose text is a sentence that says what to do. The package has no dependencies, starts no thread, and
keeps no global state.
"""

from . import _c
from ._connection import Connection, Model, connect
from ._errors import (
    Cancelled, DataCorrupt, Error, InputOutput, Internal, InvalidArgument, NotFound, PermissionDenied, Protocol,
    ResourceExhausted, Status, TimedOut, Unavailable, Unsupported, VersionMismatch)
from ._options import Message, Options, Priority
from ._sequence import Chunk, FinishReason, Sequence, TokenLogprob, Usage

__version__: str = _c.lib.inferd_version().decode()  # of the library in use

__all__ = [
    "Cancelled", "Chunk", "Connection", "DataCorrupt", "Error", "FinishReason", "InputOutput", "Internal",
    "InvalidArgument", "Message", "Model", "NotFound", "Options", "PermissionDenied", "Priority", "Protocol",
    "ResourceExhausted", "Sequence", "Status", "TimedOut", "TokenLogprob", "Unavailable", "Unsupported", "Usage",
    "VersionMismatch", "connect",
]
