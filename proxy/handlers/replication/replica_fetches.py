"""Recognise replica fetches: fetches with a replica id, which brokers send to each other. The id is a field,
or from v15 on a tagged field (KIP-903).

Any client can send a replica id, so callers look for one only if the principal belongs to a broker.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

from weir.protocol.framing import INCOMPLETE, LENGTH
from weir.protocol.framing import request_body as body_of
from weir.protocol.messages import FetchRequest
from weir.protocol.primitives import read_uvarint
from weir.protocol.scanning.field_offsets import field_offset, tag_section

IsReplicaFetch: TypeAlias = Callable[[bytearray, int, int, bool], bool | None]
"""Function (data, frame, end, complete) that returns True if the fetch `data[frame:end]` is a replica's; None
if more bytes are needed. Raises ProtocolError if the bytes are malformed.
"""
REPLICA_FETCH_BYTES: Final = 128 * 1024
"""Length (bytes) above which every fetch of a broker's principal is taken for a replica fetch. Its replica id
is behind thousands of partitions, which may not fit into the buffer.
"""
_REPLICA_STATE: Final = 1
"""Tag of the field with the replica's id and epoch."""
_REPLICA_ID: Final = Struct(">i")


def replica_fetch_test(version: int, *, flexible: bool) -> IsReplicaFetch:
    """Return a function that recognises replica fetches of this version. `flexible` is True if the request
    header has tagged fields.
    """
    plainly = field_offset(FetchRequest, version, "replica_id")
    tags = tag_section(FetchRequest, version)

    def by_field(data: bytearray, frame: int, end: int, complete: bool) -> bool | None:
        assert plainly is not None
        body = body_of(data, frame, end, flexible=flexible)
        position = INCOMPLETE if body == INCOMPLETE else plainly.locate(data, body, end, complete)
        return None if position == INCOMPLETE else plainly.read(data, position) >= 0

    def by_tag(data: bytearray, frame: int, end: int, complete: bool) -> bool | None:
        assert tags is not None
        if not complete:
            (length,) = LENGTH.unpack_from(data, frame)
            return True if length > REPLICA_FETCH_BYTES else None
        body = body_of(data, frame, end, flexible=flexible)
        if body == INCOMPLETE:
            return None
        return _replica_id(data, tags.locate(data, body, end, complete), end) >= 0

    return by_tag if plainly is None else by_field


def _replica_id(data: bytearray, position: int, end: int) -> int:
    """Return the replica id among the tagged fields that begin at `position`; -1 if no field has it."""
    count, position = read_uvarint(data, position, end)
    for _field in range(count):
        tag, position = read_uvarint(data, position, end)
        size, position = read_uvarint(data, position, end)
        if tag == _REPLICA_STATE and size >= _REPLICA_ID.size and position + size <= end:
            found: int = _REPLICA_ID.unpack_from(data, position)[0]
            return found
        position += size
    return -1
