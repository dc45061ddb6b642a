"""Scanners of bytes that are not decoded: framing, field offsets, streams, topics.

Documented error: ProtocolError. Where the codec decodes the same bytes, its result is the expected one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Final

from tests.fuzz.growth import fillers, wide
from tests.fuzz.target import Grow, Target, choosing, chosen
from tests.fuzz.targets.codecs import VERSIONS
from tests.protocol.generate import SAMPLE_ID, sample
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE, client_id_end, request_body, response_body
from weir.protocol.messages import (
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ShareAcknowledgeResponse,
    ShareFetchResponse,
)
from weir.protocol.scanning.array_mask import ArrayMask
from weir.protocol.scanning.endpoint_mask import EndpointMask, endpoints_tag
from weir.protocol.scanning.fetched_partitions import FetchedPartitions
from weir.protocol.scanning.field_offsets import FieldOffset, field_offset, tag_section
from weir.protocol.scanning.field_scanner import Bytes
from weir.protocol.scanning.least_fetch import ask_least
from weir.protocol.scanning.old_batches import OldBatches
from weir.protocol.scanning.pausing_scanner import PausingScanner
from weir.protocol.scanning.records_remover import RecordsRemover, whole_remover
from weir.protocol.scanning.topic_bytes import TopicBytes
from weir.protocol.scanning.topic_names import topics_in
from weir.protocol.values import Message, schema_of

KEPT_BYTES_MAX: Final = 1 << 20
WANTED: Final = frozenset({b"", b"t", "käse".encode()})
NAMES: Final = {bytes(16): b"t", SAMPLE_ID.bytes: "käse".encode(), b"\1" * 16: b"unwanted"}
"""Names of topic ids."""


def chunks(data: bytes, length: int) -> Iterator[bytes]:
    return (data[start : start + length] for start in range(0, len(data), length))


def decoded(message: type[Message], version: int, body: bytes) -> Any:
    """Return the codec's message; None if it is malformed for the codec."""
    try:
        return codec(message, version).decode(body)
    except ProtocolError:
        return None


# Framing


def run_framing(data: bytes) -> None:
    """Read the header of a frame: the position is in the bytes at hand, and equal when more arrive."""
    flexible, at_hand = data[:1] > b"\x7f", data[1:]
    for read in (client_id_end, _request_body(flexible), _response_body(flexible)):
        found = INCOMPLETE
        for end in (len(at_hand) // 2, len(at_hand)):
            try:
                position = read(at_hand, 0, end)
            except ProtocolError:
                break
            assert position == INCOMPLETE or 4 <= position <= end
            assert found in (INCOMPLETE, position)
            found = position


def _request_body(flexible: bool) -> Callable[[bytes, int, int], int]:
    return lambda data, frame, end: request_body(data, frame, end, flexible=flexible)


def _response_body(flexible: bool) -> Callable[[bytes, int, int], int]:
    return lambda data, frame, end: response_body(data, frame, end, flexible=flexible)


def framing_seeds() -> Sequence[bytes]:
    head = bytes.fromhex("00000010 0003 000c 00000007 0003") + b"app"
    return [
        b"\0" + head,
        b"\xff" + head + b"\0",
        b"\xff" + head + b"\2\5\1a\6\0",
        b"\xff" + bytes(8) + b"\1\3\1x",
    ]


# Field offsets


@cache
def _offsets() -> tuple[tuple[FieldOffset, type[Message], int, str], ...]:
    """Return each field that is not fixed: (offset, message, version, the field before)."""
    found: list[tuple[FieldOffset, type[Message], int, str]] = []
    for message, version in VERSIONS:
        layout = schema_of(message).layout(version)
        names = [slot.name for slot in layout.fields]
        for before, name in pairwise(names):
            offset = field_offset(message, version, name)
            assert offset is not None
            if offset.fixed_offset is None:
                found.append((offset, message, version, before))
        tags = tag_section(message, version)
        if tags is not None and names:
            found.append((tags, message, version, names[-1]))
    return tuple(found)


def run_offsets(data: bytes) -> None:
    """Locate a field: the codec's prefix ends there. Fewer bytes give the same position, or INCOMPLETE."""
    index, body = chosen(data, len(_offsets()))
    offset, message, version, before = _offsets()[index]
    position = _located(offset, body)
    assert position is None or 0 <= position <= len(body)
    try:
        _part, expected = codec(message, version).decode_prefix(body, 0, len(body), before)
    except ProtocolError:
        expected = None
    if expected is not None and decoded(message, version, body) is not None:
        assert position == expected, (message, version, before)
    _locate_in_less(offset, body, position)


def _located(offset: FieldOffset, body: bytes) -> int | None:
    try:
        return offset.locate(body, 0, len(body), True)
    except ProtocolError:
        return None


def _locate_in_less(offset: FieldOffset, body: bytes, expected: int | None) -> None:
    for end in (len(body) // 2, len(body) - 1):
        try:
            position = offset.locate(body, 0, max(end, 0), False)
        except ProtocolError:
            assert expected is None or offset.offset_from_end is not None
            continue
        assert position in (INCOMPLETE, expected) or offset.offset_from_end is not None


@cache
def offset_seeds() -> tuple[bytes, ...]:
    return tuple(
        choosing(index, codec(message, version).encode(sample(message, version)))
        for index, (_offset, message, version, _before) in enumerate(_offsets())
    )


def growing_offsets() -> dict[str, Grow]:
    """Return wide messages for the last field of each newest version."""
    grown: dict[str, Grow] = {}
    for index, (offset, message, version, _before) in enumerate(_offsets()):
        if not offset.field and version == schema_of(message).versions.max:
            grown |= wide(message, version, choosing(index, b""))
            grown |= {
                f"{offset.message} {name}": grow for name, grow in fillers(choosing(index, b"")).items()
            }
    return grown


# Streams that are fed in pieces


LAST_ENDPOINTS: Final = (ShareFetchResponse, ShareAcknowledgeResponse)
"""Messages whose last array has addresses of brokers."""


@cache
def _streamed() -> tuple[tuple[type[Message], int], ...]:
    return tuple(
        (message, version)
        for message, version in VERSIONS
        if message in (ProduceRequest, FetchResponse, *LAST_ENDPOINTS)
        or endpoints_tag(message, version) is not None
    )


def run_streams(data: bytes) -> None:
    """Feed every stream scanner in pieces: the result is that of one piece, and the codec's."""
    index, rest = chosen(data, len(_streamed()))
    message, version = _streamed()[index]
    length, body = (rest[0] or 256 if rest else 1), rest[1:]
    for follow in (_masked, _array_masked, _topic_bytes, _partitions, _old_bytes, _removed):
        whole = _outcome(follow, message, version, body, max(len(body), 1))
        assert _outcome(follow, message, version, body, length) == whole, (follow, message, version)
    value = decoded(message, version, body)
    if value is not None:
        _compare(message, version, body, value)


def _outcome(
    follow: Callable[[type[Message], int, bytes, int], object],
    message: type[Message],
    version: int,
    body: bytes,
    length: int,
) -> object:
    try:
        return follow(message, version, body, length)
    except ProtocolError:
        return ProtocolError


def _in_turns(scan: PausingScanner, data: Bytes, elements_max: int) -> None:
    position = 0
    while position < len(data):
        position = scan.feed(data, position, len(data), elements_max)


def _masked(message: type[Message], version: int, body: bytes, length: int) -> object:
    if endpoints_tag(message, version) is None:
        return None
    mask, out = EndpointMask(message, version), b""
    for chunk in map(bytearray, chunks(body, length)):
        _in_turns(mask, chunk, length)
        out += chunk
    return out, mask.complete


def _array_masked(message: type[Message], version: int, body: bytes, length: int) -> object:
    if message not in LAST_ENDPOINTS:
        return None
    mask, out = ArrayMask(message, version, "node_endpoints", len(body)), b""
    for chunk in map(bytearray, chunks(body, length)):
        _in_turns(mask, chunk, length)
        out += chunk
    assert len(out) == len(body)
    return out


def _topic_bytes(message: type[Message], version: int, body: bytes, length: int) -> object:
    if message not in (ProduceRequest, FetchResponse, ShareFetchResponse):
        return None
    counter = TopicBytes(message, version, WANTED, NAMES)
    for chunk in chunks(body, length):
        _in_turns(counter, chunk, length)
    return dict(counter.counted), counter.complete


def _partitions(message: type[Message], version: int, body: bytes, length: int) -> object:
    if message is not FetchResponse:
        return None
    noted: list[tuple[object, ...]] = []
    scan = FetchedPartitions(version, lambda *partition: noted.append(partition))
    for chunk in chunks(body, length):
        _in_turns(scan, chunk, length)
    return noted, scan.error_code, scan.session_id, scan.complete


def _old_bytes(message: type[Message], version: int, body: bytes, length: int) -> object:
    if message is not FetchResponse:
        return None
    scan = OldBatches(version, 1 << 62)
    for chunk in chunks(body, length):
        _in_turns(scan, chunk, length)
    return scan.old_bytes, scan.complete


def _removed(message: type[Message], version: int, body: bytes, length: int) -> object:
    if message is not FetchResponse:
        return None
    if length == len(body):
        whole = bytearray()
        whole_remover(version)(body, 0, length, sys.maxsize, whole, KEPT_BYTES_MAX)
        return whole
    remover = RecordsRemover(version, kept_bytes_max=KEPT_BYTES_MAX)
    for chunk in chunks(body, length):
        _in_turns(remover, chunk, length)
    return remover.body()


def _compare(message: type[Message], version: int, body: bytes, value: Any) -> None:
    if _topic_bytes(message, version, body, len(body)) is not None:
        assert _topic_bytes(message, version, body, len(body)) == (_counted(message, version, value), True)
    if message in LAST_ENDPOINTS:
        hidden: Any = decoded(message, version, _array_masked(message, version, body, len(body)))  # type: ignore[arg-type]  # bytes
        if value.node_endpoints:
            value.node_endpoints, value.unknown_tagged_fields = [], hidden.unknown_tagged_fields
        assert hidden == value
    if message is FetchResponse:
        sizes = [len(part.records or b"") for topic in value.responses for part in topic.partitions]
        old_bytes: Any = _old_bytes(message, version, body, len(body))
        assert (old_bytes[0] <= sum(sizes), old_bytes[1]) == (True, True)
        reported = _reported(value, version), value.error_code, value.session_id, True
        assert _partitions(message, version, body, len(body)) == reported
        emptied = decoded(message, version, _removed(message, version, body, len(body)))  # type: ignore[arg-type]  # bytes
        for topic in value.responses:
            for partition in topic.partitions:
                partition.records = partition.records and b""
        assert codec(message, version).encode(emptied) == codec(message, version).encode(value)


def _reported(value: FetchResponse, version: int) -> list[tuple[object, ...]]:
    """Return the partitions of a decoded fetch response, as `FetchedPartitions` reports them."""
    return [
        (
            topic.topic.encode() if version <= 12 else topic.topic_id.bytes,
            part.partition_index,
            part.error_code,
            part.high_watermark,
            len(part.records or b""),
        )
        for topic in value.responses
        for part in topic.partitions
    ]


def _counted(message: type[Message], version: int, value: Any) -> dict[bytes, int]:
    """Return the bytes by the name of wanted topics, and by the ids that have no name."""
    counted: Counter[bytes] = Counter()
    for topic in value.topic_data if message is ProduceRequest else value.responses:
        if message is ShareFetchResponse or version >= 13:
            name = NAMES.get(topic.topic_id.bytes, topic.topic_id.bytes)
            is_counted = name in WANTED or topic.topic_id.bytes not in NAMES
        else:
            name = (topic.name if message is ProduceRequest else topic.topic).encode()
            is_counted = name in WANTED
        if is_counted:
            partitions = topic.partition_data if message is ProduceRequest else topic.partitions
            counted[name] += sum(len(partition.records or b"") for partition in partitions)
    return {name: size for name, size in counted.items() if size}


@cache
def stream_seeds() -> tuple[bytes, ...]:
    """Return a sample of every message that is scanned while it streams by."""
    return tuple(
        choosing(index, b"\7" + codec(message, version).encode(sample(message, version)))
        for index, (message, version) in enumerate(_streamed())
    )


def growing_streams() -> dict[str, Grow]:
    grown: dict[str, Grow] = {}
    for index, (message, version) in enumerate(_streamed()):
        if version in (3, 11, schema_of(message).versions.max):
            prefix = choosing(index, b"\xff")
            grown |= wide(message, version, prefix)
            grown |= {f"{message.__name__} v{version} {name}": grow for name, grow in fillers(prefix).items()}
    return grown


# Fetch requests: names, and asking for the least


@cache
def _fetches() -> tuple[int, ...]:
    return tuple(schema_of(FetchRequest).versions)


def run_fetches(data: bytes) -> None:
    """Find topics in fetch requests, and ask for the least: the codec finds the same. No topic's name is
    empty.
    """
    index, body = chosen(data, len(_fetches()))
    version = _fetches()[index]
    value = decoded(FetchRequest, version, body)
    wanted, unknown = WANTED - {b""}, set[bytes]()
    try:
        found: object = topics_in(FetchRequest, version, "topics")(body, 0, len(body), wanted, NAMES, unknown)
    except ProtocolError:
        found = None
    if value is not None and version < 13:
        assert found == {topic.topic.encode() for topic in value.topics} & wanted
    elif value is not None:
        ids = {topic.topic_id.bytes for topic in value.topics}
        assert (found, unknown) == ({NAMES[one] for one in ids & NAMES.keys()} & wanted, ids - NAMES.keys())
    changed = bytearray(body)
    try:
        ask_least(version)(changed, 0, len(changed), True)
    except ProtocolError:
        assert changed == body
        assert value is None
        return
    if value is not None:
        asked = decoded(FetchRequest, version, bytes(changed))
        assert (asked.max_wait_ms, asked.min_bytes) == (0, 0)
        assert asked.topics == value.topics


def fetch_seeds() -> list[bytes]:
    return [
        choosing(index, codec(FetchRequest, version).encode(sample(FetchRequest, version)))
        for index, version in enumerate(_fetches())
    ]


def growing_fetches() -> dict[str, Grow]:
    grown: dict[str, Grow] = {}
    for index, version in enumerate(_fetches()):
        grown |= wide(FetchRequest, version, choosing(index, b""))
    return grown


FRAMING: Final = Target("framing", run_framing, framing_seeds, lambda: fillers(b"\xff" + bytes(14)))
OFFSETS: Final = Target("field-offsets", run_offsets, offset_seeds, growing_offsets)
STREAMS: Final = Target("streams", run_streams, stream_seeds, growing_streams)
FETCHES: Final = Target("fetch-requests", run_fetches, fetch_seeds, growing_fetches)
