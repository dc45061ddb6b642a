"""Blocks: the parts of a capture file, each with its length and a CRC.

A file is a header of 12 bytes, then blocks. Each block has a head of 16 bytes and a payload, which is
compressed by zlib if that makes it smaller. A block is read completely or not at all, so a damaged file loses
only the blocks from the damage on. Readers skip blocks of kinds that they do not know.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, TypeVar

import msgspec

from weir.conformance.events import Bytes, Event

T = TypeVar("T")

MAGIC: Final = b"\x89WEIRCAP"
VERSION: Final = 1
FILE_HEAD: Final = Struct(">8sHH")
"""Format of a file's first 12 bytes: magic, version, and two zero bytes."""
BLOCK_HEAD: Final = Struct(">2sBBIII")
"""Format of a block's first 16 bytes: marker, kind, flags, bytes of the payload in the file, bytes of the
payload uncompressed, CRC-32 of the head's first 12 bytes and the payload.
"""
_CHECKED: Final = Struct(">2sBBII")
MARKER: Final = b"WB"
COMPRESSED: Final = 1
"""Flag of a block whose payload is compressed."""
PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size (bytes) of a payload, compressed or not. It bounds the memory of readers."""
EVENTS_MAX: Final = 100_000
"""Maximum number of events of a block. Few compressed bytes could be millions of events otherwise."""
SAMPLE_BYTES: Final = 8192
END: Final = Struct(">Q")
"""Format of the payload of an end block: offset of the latest index block, 0 without one."""
END_BLOCK_BYTES: Final = BLOCK_HEAD.size + END.size


class CaptureError(Exception):
    """A file is no capture, or cannot be written. The text is one line."""


class DamagedCaptureError(CaptureError):
    """A capture is cut or damaged; all events before the damage were read."""


class BlockKind(IntEnum):
    """Kind of a block."""

    RUN = 1
    """A recorder begins to write: a `Run`."""
    EVENTS = 2
    """An array of events in the order of time."""
    INDEX = 3
    """The blocks of events since the previous index: an `Index`."""
    END = 4
    """The file was closed: the offset of the latest index (`END`)."""


class Run(msgspec.Struct, frozen=True):
    """Facts about the events that follow, up to the next run."""

    time_ns: int
    """Time (ns) since the epoch of the run's start."""
    source: str = ""
    """Origin of the events, for example "kafka-1:9092" or the name of a pcap file."""
    tool: str = ""
    """Name and version of the writer."""
    redacted: bool = True
    """True if credentials were replaced by filler of the same length."""
    blanked: bool = False
    """True if the payloads of record batches were replaced by zeros: their CRCs and compressed data are
    wrong.
    """


class IndexEntry(msgspec.Struct, frozen=True, array_like=True):
    """One block of events."""

    offset: int
    """Offset (bytes) of the block from the start of the file."""
    first_ns: int
    """Smallest time (ns) of the block's events."""
    last_ns: int
    """Largest time (ns) of the block's events."""
    events: int
    """Number of events."""
    data_bytes: int
    """Number of bytes of the connections in the block."""
    connections: list[int]
    """Connections of the block's events, sorted."""


class Index(msgspec.Struct, frozen=True):
    """An index block: the blocks of events since the previous index block."""

    previous: int
    """Offset of the previous index block; 0 without one."""
    next_connection: int
    """A number larger than that of every connection in the file so far."""
    entries: list[IndexEntry]


class Block(NamedTuple):
    """A block whose CRC is right."""

    offset: int
    """Offset (bytes) from the start of the file."""
    end: int
    """Offset (bytes) of the next block."""
    kind: int
    payload: bytes
    """Uncompressed payload."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_EVENTS: Final = msgspec.msgpack.Decoder(list[Event])
_RUN: Final = msgspec.msgpack.Decoder(Run)
_INDEX: Final = msgspec.msgpack.Decoder(Index)
encode: Final = _ENCODER.encode
"""Function that returns the payload of a block of events, a run or an index."""


def file_head() -> bytes:
    """Return the first bytes of a capture file."""
    return FILE_HEAD.pack(MAGIC, VERSION, 0)


def check_file_head(head: bytes, name: str) -> None:
    """Raise CaptureError if these first bytes are not those of a capture that this version reads; `name` is
    the file's name for the message.
    """
    if len(head) < FILE_HEAD.size or not head.startswith(MAGIC):
        raise CaptureError(
            f"{name} is not a capture of Weir: its first bytes are {head[:8].hex() or 'missing'}"
        )
    version = FILE_HEAD.unpack(head)[1]
    if version != VERSION:
        raise CaptureError(f"{name} has version {version} of the capture format; this Weir reads {VERSION}")


def block(kind: BlockKind, payload: bytes) -> bytes:
    """Return a block, compressed if that makes it smaller. Raises ValueError for a payload above the
    maximum.
    """
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a payload of {len(payload)} bytes")
    flags, stored = 0, payload
    if kind != BlockKind.END and _is_compressible(payload):
        packed = zlib.compress(payload, 1)
        if len(packed) < len(payload):
            flags, stored = COMPRESSED, packed
    fields = (MARKER, kind, flags, len(stored), len(payload))
    return BLOCK_HEAD.pack(*fields, _crc(_CHECKED.pack(*fields), stored)) + stored


def read_block(read: Callable[[int], bytes], offset: int) -> Block | None:
    """Read the block at `offset`, where `read` is positioned; `read(n)` returns up to n bytes, fewer only at
    the end of the file. Return None at the end of the file. Raises DamagedCaptureError.
    """
    head = read(BLOCK_HEAD.size)
    if not head:
        return None
    if len(head) < BLOCK_HEAD.size:
        raise _damaged(offset, "the file ends within a block's head")
    marker, kind, flags, stored_bytes, payload_bytes, crc = BLOCK_HEAD.unpack(head)
    if marker != MARKER or max(stored_bytes, payload_bytes) > PAYLOAD_BYTES_MAX:
        raise _damaged(offset, "a block's head is damaged")
    stored = read(stored_bytes)
    if len(stored) < stored_bytes:
        raise _damaged(offset, "the file ends within a block")
    if _crc(head[: _CHECKED.size], stored) != crc:
        raise _damaged(offset, "a block's CRC is wrong")
    payload = _unpacked(stored, payload_bytes, offset) if flags & COMPRESSED else stored
    return Block(offset, offset + len(head) + stored_bytes, kind, payload)


def events_of(found: Block) -> list[Event]:
    """Return the events of a block of events. Raises DamagedCaptureError."""
    if _array_size(found.payload) > EVENTS_MAX:
        raise _damaged(found.offset, f"a block has more than {EVENTS_MAX} events")
    return _decode(_EVENTS, found)


def run_of(found: Block) -> Run:
    """Return the run of a run block. Raises DamagedCaptureError."""
    return _decode(_RUN, found)


def index_of(found: Block) -> Index:
    """Return the index of an index block. Raises DamagedCaptureError."""
    return _decode(_INDEX, found)


def index_entry(offset: int, events: list[Event]) -> IndexEntry:
    """Return the index entry of the block with these events (at least one) at this offset."""
    times = [event.time_ns for event in events]
    data_bytes = sum(len(event.data) for event in events if isinstance(event, Bytes))
    connections = sorted({event.connection for event in events})
    return IndexEntry(offset, min(times), max(times), len(events), data_bytes, connections)


def _is_compressible(payload: bytes) -> bool:
    """Return True if a sample from the payload's middle becomes at least a tenth smaller. Compressed records
    do not, and zlib would take long to find that out.
    """
    start = max(0, len(payload) // 2 - SAMPLE_BYTES // 2)
    sample = payload[start : start + SAMPLE_BYTES]
    return len(zlib.compress(sample, 1)) <= len(sample) * 9 // 10


def _array_size(payload: bytes) -> int:
    """Return the number of elements of a MessagePack array; 0 for another type, which does not decode."""
    size_bytes = {0xDC: 2, 0xDD: 4}.get(payload[0], 0) if payload else 0
    if size_bytes:
        return int.from_bytes(payload[1 : 1 + size_bytes])
    return payload[0] & 0x0F if payload else 0


def _decode(decoder: msgspec.msgpack.Decoder[T], found: Block) -> T:
    try:
        return decoder.decode(found.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _damaged(found.offset, f"a block cannot be decoded ({error})") from None


def _unpacked(stored: bytes, payload_bytes: int, offset: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        payload = unpacker.decompress(stored, payload_bytes + 1)
    except zlib.error as error:
        raise _damaged(offset, f"a block cannot be decompressed ({error})") from None
    if len(payload) != payload_bytes:
        raise _damaged(offset, "a block has another size than its head says")
    return payload


def _crc(head: bytes, stored: bytes) -> int:
    return zlib.crc32(stored, zlib.crc32(head))


def _damaged(offset: int, problem: str) -> DamagedCaptureError:
    return DamagedCaptureError(f"damaged at byte {offset}: {problem}; the events before it were read")
