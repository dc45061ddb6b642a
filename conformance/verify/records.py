"""Scans the records of a batch (magic 2): length, attributes, deltas, key, value, headers.

Source: Kafka's message format, and its class DefaultRecord. The loop is one function, without a call for most
varints, because captures have a record for every hundred bytes or so.
"""

from __future__ import annotations

import msgspec


class MalformedRecordError(Exception):
    """Raised for a malformed record. Attributes: number of the record in its batch, offset (bytes)."""

    def __init__(self, reason: str, number: int, offset: int) -> None:
        super().__init__(reason)
        self.number = number
        self.offset = offset


class Summary(msgspec.Struct, gc=False):
    """The records of a batch, summed up."""

    count: int
    last_delta: int
    """Offset delta of the last record; -1 without records."""
    out_of_order: int
    """Number of the first record whose offset delta is not above the one before; -1 if all ascend."""
    consecutive: bool
    """True if the offset deltas are 0, 1, 2, …"""
    timestamp_delta_max: int
    """Greatest delta (ms) of a timestamp; 0 without records."""


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    """Read a signed varint of at most ten bytes. Raises IndexError at the end of the data, ValueError for a
    longer varint.
    """
    value = shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise ValueError("a varint has more than ten bytes")


def scan_records(data: bytes, position: int, end: int) -> Summary:  # noqa: C901  # a loop without calls
    """Return the summary of the records in data[position:end]. Raises MalformedRecordError."""
    count = 0
    last_delta, out_of_order, consecutive = -1, -1, True
    latest = 0
    start = position
    try:
        while position < end:
            start = position
            byte = data[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = _zigzag(data, position)
            stop = position + length
            if length < 0 or stop > end:
                raise MalformedRecordError(f"a record of {length} bytes, {end - position} left", count, start)
            byte = data[position + 1]  # behind the attributes
            if byte < 0x80:
                timestamp, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                timestamp, position = _zigzag(data, position + 1)
            if timestamp > latest or not count:
                latest = timestamp
            byte = data[position]
            if byte < 0x80:
                delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                delta, position = _zigzag(data, position)
            if delta != count:
                consecutive = False
            if delta <= last_delta and out_of_order < 0:
                out_of_order = count
            last_delta = delta
            for _ in range(2):  # key and value
                byte = data[position]
                if byte < 0x80:
                    size, position = (byte >> 1) ^ -(byte & 1), position + 1
                else:
                    size, position = _zigzag(data, position)
                if size > 0:
                    position += size
                elif size < -1:
                    raise MalformedRecordError(f"a key or value of {size} bytes", count, start)
            headers = data[position] if position < stop else 0x80
            position = _skip_headers(data, position, stop) if headers else position + 1
            if position != stop:
                raise MalformedRecordError(
                    f"its fields end {position - stop:+d} bytes from its length", count, start
                )
            count += 1
    except IndexError:
        raise MalformedRecordError("ends within a field", count, start) from None
    except ValueError as error:
        raise MalformedRecordError(str(error), count, start) from None
    return Summary(count, last_delta, out_of_order, consecutive, latest)


def _skip_headers(data: bytes, position: int, stop: int) -> int:
    """Return the position behind the headers. Raises ValueError for a malformed header, IndexError at the end
    of the data.
    """
    count, position = _zigzag(data, position)
    if count < 0 or 2 * count > stop - position:
        raise ValueError(f"{count} headers in {stop - position} bytes")
    for _ in range(count):
        for null in (0, -1):  # the key may not be null
            size, position = _zigzag(data, position)
            if size < null:
                raise ValueError(f"a header's key or value of {size} bytes")
            position += max(0, size)
    return position
