"""Features of a request that change its request time, read from its body.

Produce: whether acks waits for all replicas, the number of partitions, and the unpacked size of compressed
records (`unpacked_sizes`), because brokers unpack them to validate. If a producer's requests have one
partition and begin with the same bytes as its previous request, only the batch's codec is read.

Fetch: an incremental fetch (KIP-227) lists only changed partitions, but the broker reads all partitions of
the fetch session. So such a fetch is charged for the difference in length from the longest fetch of that
fetch session on this connection. Fetch sessions begun on other connections are unknown; clients begin one per
connection.

The functions here refuse no request and raise no error. Their work is bounded, even if a request claims to
have millions of partitions.
"""

from __future__ import annotations

from operator import mul
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Final

from weir.protocol import schema
from weir.protocol.api import ApiKey
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import (
    INCOMPLETE,
    LENGTH,
    LENGTH_BYTES,
    REQUEST_HEAD_BYTES,
    request_body,
    skip_tags,
)
from weir.protocol.messages import FetchRequest, ProduceRequest
from weir.protocol.scanning.field_offsets import field_offset
from weir.protocol.scanning.produced_records import records_in
from weir.protocol.scanning.record_batches import (
    ATTRIBUTES_OFFSET,
    CODEC_BITS,
    PACKED_WEIGHT,
    add_unpacked,
)
from weir.protocol.scanning.unpacked_sizes import RATIO_MAX
from weir.quotas.costs.cost import WAIT_US
from weir.quotas.costs.request_costs import CODECS

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import Context, EstimatedRequest, Extra, Plan
    from weir.quotas.costs.request_costs import ApiCost

PARTITIONS_MAX: Final = 64
"""Maximum number of partitions that Weir reads in a produce request. It assumes that the other partitions are
like these.
"""
PACKED_MAX: Final = 16
"""Maximum number of partitions with compressed records whose batches Weir reads in a produce request. Reading
compressed batches takes longer. If there are more, Weir reads a random sample.
"""
CONFIRMED_EVERY: Final = 16
"""Average number of requests with compressed records per request in which Weir unpacks one gzip stream, to
confirm its size.
"""
_CHANCES: Final = Random()  # noqa: S311  # nobody sees enough of it to guess the next choice
_BYTES_PER_KB: Final = 1000.0
_ALL: Final = -1
_ONE_BATCH: Final = 3
"""First version of Produce in which each partition has one batch, of magic 2 (KIP-98)."""
_SHAPE_BYTES_MAX: Final = 1024
"""Maximum length (bytes) of the beginning of a produce request that is kept per connection. A longer
beginning is not kept; client-ids and topics are rarely so long.
"""
_VARINT_BYTES_MAX: Final = 4
"""Maximum number of bytes before the last one, in a varint that has the length of a partition's records."""
_LEAST: Final = _VARINT_BYTES_MAX + 1 + ATTRIBUTES_OFFSET + 1
"""Number of bytes of a produce request that are needed to read the compression codec. They begin at the field
with the records' length: at its last byte if it is an int32, at its first if it is a varint.
"""
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_DOWN_CONVERTED: Final = ((4, 4), (2, 2))
"""Pairs (version, below) of Fetch versions: a broker that has `version` stores records in a format (magic 2,
magic 1) that fetches in versions lower than `below` cannot read. Brokers from 4.0 on accept no such fetches.
"""


def extra(plan: Plan, api: ApiCost, chances: Random = _CHANCES) -> Extra | None:
    """Return the function that computes the extra cost of requests of this plan: the cost in addition to that
    of the request's length. None if there is nothing to read, or the version is unknown. `chances` is the
    random generator that decides which sizes are confirmed.
    """
    known = schema.api(plan.api_key)
    if known is None or plan.version not in known.request.versions:
        return None
    if plan.api_key == ApiKey.PRODUCE and (api.us_acks_all or api.us_per_partition or api.us_per_unpacked_kb):
        return produced(plan, api, chances)
    if plan.api_key == ApiKey.FETCH and api.us_per_session_kb:
        return fetched(plan, api)
    return None


class RequestShapes:
    """The latest requests of a connection, by which the cost of the next ones is known."""

    __slots__ = ("fetch_length", "produce", "settled_us")

    def __init__(self) -> None:
        self.fetch_length = 0
        """Length (bytes) of the longest fetch request of the latest fetch session; 0 if none was seen."""
        self.produce: tuple[Plan, bytes, int, float] | None = None
        """Beginning of the latest produce request with one partition: its plan; its bytes from the client-id
        on; the offset in the frame of the field with the records' length (of that field's last byte if it is
        an int32); the cost (µs) of these bytes. None before the first.
        """
        self.settled_us = 0
        """Time (µs) up to which the broker's work on this connection was charged already. A correction by
        response time charges only later work.
        """


def converted(version: int, newest: int | None) -> bool:
    """Return True if the broker must convert records to an older format for fetches of this version
    (KafkaApis, down-conversion). `newest` is the broker's last version of Fetch; None stands for a current
    broker.
    """
    for spoken, below in _DOWN_CONVERTED:
        if newest is None or newest >= spoken:
            return version < below
    return False


def produced(plan: Plan, api: ApiCost, chances: Random) -> Extra:
    """Return the function that computes the cost of produce requests of this version in addition to the cost
    of their length.
    """
    closely = _Produced(plan, api, chances).look

    def look(context: Context, asked: EstimatedRequest, data: bytearray, frame: int, end: int) -> float:
        us = known_us(context, plan, data, frame, end)
        if us >= 0.0:
            return us
        try:
            return closely(context, asked, data, frame, end)
        except ProtocolError:
            return 0.0

    return look


def known_us(context: Context, plan: Plan, data: bytearray, frame: int, end: int) -> float:
    """Return the extra cost (µs) of a request, in addition to that of its length, if no byte behind
    `data[frame:end]` can change it; INCOMPLETE if one can. None can in a produce request of one partition
    that begins with the same bytes as the connection's previous one, and whose records are not compressed.
    """
    shape = context.state_of(RequestShapes).produce
    if shape is None:
        return INCOMPLETE
    known, head, offset, us = shape
    if known is not plan or not data.startswith(head, frame + REQUEST_HEAD_BYTES):
        return INCOMPLETE
    at = frame + offset
    if at + _LEAST > end:
        return INCOMPLETE
    if plan.flexible_request:
        most = at + _VARINT_BYTES_MAX
        while data[at] > 127 and at < most:
            at += 1
    return INCOMPLETE if data[at + 1 + ATTRIBUTES_OFFSET] & CODEC_BITS else us


class _Produced:
    """Computes the cost of produce requests of one version in addition to the cost of their length, from
    their bodies.
    """

    __slots__ = (
        "_acks",
        "_chances",
        "_find",
        "_plan",
        "_unpacks",
        "_us",
        "_us_acks_all",
        "_us_per_byte",
        "_us_per_partition",
        "_us_per_unpacked",
        "_us_unread_max",
    )

    def __init__(self, plan: Plan, api: ApiCost, chances: Random) -> None:
        acks = field_offset(ProduceRequest, plan.version, "acks")
        if acks is None:
            raise AssertionError("every produce request has acks")
        self._plan = plan
        self._acks = acks
        self._find = records_in(plan.version)
        self._us_acks_all = api.us_acks_all
        self._us_per_partition = api.us_per_partition
        by_codec = [api.us_per_unpacked_kb.get(codec, 0.0) / _BYTES_PER_KB for codec in CODECS]
        self._us_per_unpacked = [0.0, *by_codec]
        """Cost (µs) per byte of unpacked records, by the compression codec's number; 0 for uncompressed
        records.
        """
        self._unpacks = any(by_codec)
        self._us_unread_max = max(map(mul, self._us_per_unpacked, RATIO_MAX))
        """Maximum cost (µs) per byte of records that Weir has not read: these bytes may be compressed with
        the most expensive codec.
        """
        self._us, self._us_per_byte = api.us, api.us_per_request_kb / _BYTES_PER_KB
        self._chances = chances

    def look(self, context: Context, asked: EstimatedRequest, data: bytearray, frame: int, end: int) -> float:
        """Return the cost (µs) of the request in addition to the cost of its length. Raises ProtocolError if
        the request is malformed.
        """
        plan = self._plan
        body = request_body(data, frame, end, flexible=plan.flexible_request)
        acks = INCOMPLETE if body == INCOMPLETE else self._acks.locate(data, body, end, False)
        if acks == INCOMPLETE:
            return 0.0
        us = self._us_acks_all if self._acks.read(data, acks) == _ALL else 0.0
        length: int = LENGTH.unpack_from(data, frame)[0]
        stop = frame + LENGTH_BYTES + length
        topics, begun, partitions, first, spans = self._find(data, body, min(end, stop), PARTITIONS_MAX)
        if topics == 1 and partitions == 1 and plan.version >= _ONE_BATCH:
            start = frame + REQUEST_HEAD_BYTES
            if first - start <= _SHAPE_BYTES_MAX:
                offset = first - frame + _INT32.size + (0 if plan.flexible_request else _INT32.size - 1)
                context.state_of(RequestShapes).produce = (plan, bytes(data[start:first]), offset, us)
        elif topics > 1 or partitions > 1:
            all_of_them = partitions * topics / begun if 0 < begun < topics else float(partitions)
            most = length / _PARTITION_BYTES_LEAST
            us += self._us_per_partition * max(0.0, min(all_of_them, most) - 1.0)
        if not self._unpacks:
            return us
        partly = begun < topics or len(spans) < partitions
        unpacking_us, most_us = self._unpacking_us(data, spans, body, stop, end, partly)
        us += unpacking_us
        unconfirmed_us = most_us - unpacking_us
        if unconfirmed_us > us + self._us + self._us_per_byte * length + WAIT_US:  # else nothing can follow
            asked.unconfirmed_us = unconfirmed_us
        return us

    def _unpacking_us(
        self,
        data: bytearray,
        spans: list[tuple[int, int]],
        body: int,
        frame_stop: int,
        end: int,
        partly: bool,
    ) -> tuple[float, float]:
        """Return the cost (µs) of unpacking the records of a produce request, and the maximum that this cost
        can have. With `partly`, only a part of the body was read: extrapolate to the whole body.

        If there are many batches, Weir chooses at random the batches that it reads and the sizes that it
        confirms. So no client can place an expensive batch where Weir does not look, and the average cost is
        the same as if all batches were read.
        """
        one_batch = self._plan.version >= _ONE_BATCH
        packed, stop, unread = [], body, 0
        for start, behind in spans:
            attributes = start + ATTRIBUTES_OFFSET
            if attributes >= end:
                unread += behind - start
            elif not one_batch or data[attributes] & CODEC_BITS:
                packed.append((start, min(behind, frame_stop)))
            stop = min(behind, frame_stop)
        if partly:
            unread += frame_stop - stop
        if not packed:
            return 0.0, unread * self._us_unread_max
        weight = 1.0
        if len(packed) > PACKED_MAX:
            weight = len(packed) / PACKED_MAX
            packed = self._chances.sample(packed, PACKED_MAX)
        confirmed = int(self._chances.random() * CONFIRMED_EVERY * len(packed))
        unpacked, bounds = [0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]
        for number, (start, behind) in enumerate(packed):
            confirm = CONFIRMED_EVERY * len(packed) if number == confirmed else 0
            unread += add_unpacked(data, start, behind, end, unpacked, bounds, confirm, PACKED_WEIGHT)
        us = most_us = 0.0
        for codec in range(1, len(unpacked)):
            us += self._us_per_unpacked[codec] * unpacked[codec]
            most_us += self._us_per_unpacked[codec] * bounds[codec]
        us, most_us = us * weight, most_us * weight + unread * self._us_unread_max
        if partly:
            us *= (frame_stop - body) / max(1, stop - body)
        return us, max(us, most_us)


_PARTITION_BYTES_LEAST: Final = 5
"""Minimum size (bytes) of a partition in a produce request: its index and the length of its records."""


def fetched(plan: Plan, api: ApiCost) -> Extra | None:
    """Return the function that computes the cost of fetches of this version in addition to the cost of their
    length; None if the version has no fetch sessions.
    """
    epoch_place = field_offset(FetchRequest, plan.version, "session_epoch")
    if epoch_place is None:
        return None
    offset = epoch_place.fixed_offset
    if offset is None:
        raise AssertionError("only integers come before a fetch session's epoch")
    us_per_byte = api.us_per_session_kb / _BYTES_PER_KB
    flexible = plan.flexible_request
    nameless = REQUEST_HEAD_BYTES + _INT16.size + (1 if flexible else 0)

    def look(context: Context, _asked: EstimatedRequest, data: bytearray, frame: int, end: int) -> float:
        body = frame + nameless
        if body > end:
            return 0.0
        size: int = _INT16.unpack_from(data, frame + REQUEST_HEAD_BYTES)[0]
        if size > 0:
            body += size
        if flexible and (body > end or data[body - 1]):
            body = _behind_tags(data, body - 1, end, frame)
        if body + offset + _INT32.size > end:
            return 0.0
        epoch: int = _INT32.unpack_from(data, body + offset)[0]
        if epoch < 0:
            return 0.0
        length: int = LENGTH.unpack_from(data, frame)[0]
        shapes = context.state_of(RequestShapes)
        if epoch == 0 or length >= shapes.fetch_length:
            shapes.fetch_length = length
            return 0.0
        return us_per_byte * (shapes.fetch_length - length)

    return look


def _behind_tags(data: bytearray, position: int, end: int, frame: int) -> int:
    """Return the position of the body of a request whose header has tagged fields; the end of the arrived
    bytes if the body has not arrived.
    """
    try:
        found = skip_tags(data, position, end, frame)
    except ProtocolError:
        return end
    return end if found == INCOMPLETE else found
