"""Events of recorded connections: opened, bytes, closed, dropped.

A capture is a sequence of events in the order of time. A connection number is unique within a capture, unless
the connection was closed by both sides: a later `Opened` may then use the number again. Writers of captures
make events; readers of captures return them; `verify` takes them.

Capture files contain events as arrays: the tag, then the fields in the order below. So a new field goes to
the end of its class, with a default, and no field is removed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import msgspec


class Side(IntEnum):
    """The sender of bytes."""

    CLIENT = 0
    """The client sends to the server."""
    SERVER = 1
    """The server sends to the client."""


class Opened(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=0):
    """A connection begins."""

    connection: int
    time_ns: int
    """Time (ns) since the epoch."""
    client: str
    """Address of the client, "host:port"; "" if unknown."""
    server: str
    """Address of the server, "host:port"; "" if unknown."""
    label: str = ""
    """Name that the capture gives the connection, for example of the listener; "" without a name."""


class Bytes(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """One side sent bytes. Boundaries between events have no meaning."""

    connection: int
    time_ns: int
    """Time (ns) since the epoch at which the recorder saw the bytes."""
    side: Side
    data: bytes


class Closed(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """One side sends no more bytes on this connection."""

    connection: int
    time_ns: int
    side: Side


class Dropped(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """One side sent bytes that the capture lacks. Bytes after this event do not join those before it."""

    connection: int
    time_ns: int
    side: Side
    count: int
    """Number of bytes that are missing, at least 1."""


Event: TypeAlias = Opened | Bytes | Closed | Dropped
