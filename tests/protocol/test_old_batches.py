"""Bytes of old record batches in fetch responses, in batches that kafka-python makes."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.batches import TIME_MS, batch, message_set
from tests.wire.frames import body_of, response
from tests.wire.messages import identity
from weir.protocol.messages import FetchResponse
from weir.protocol.scanning.old_batches import OldBatches
from weir.protocol.values import schema_of

VERSIONS: Final = list(schema_of(FetchResponse).versions)
LATER_MS: Final = TIME_MS + 100
HEADER_BYTES: Final = {0: 8, 1: 9}
"""Frame length and response header, by header version."""


def body(version: int, *records: bytes | None) -> bytes:
    partitions = [FetchResponse.PartitionData(records=each) for each in records]
    topic = FetchResponse.FetchableTopicResponse(**identity("t", version), partitions=partitions)
    value = FetchResponse(responses=[topic, topic])
    frame = response(value, version, 1)
    assert body_of(frame, FetchResponse, version).responses[0].partitions[0].records == records[0]
    return frame[HEADER_BYTES[version >= 12] :]


def old_bytes(
    data: bytes, version: int, before_ms: int, cut: int | None = None, elements: int = 10**6
) -> int:
    scan, at = OldBatches(version, before_ms), 0
    while at < len(data):
        stop = min(len(data), at + (cut or len(data)))
        at = scan.feed(bytearray(data), at, stop, elements)
    assert scan.complete
    return scan.old_bytes


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cut", [None, 1, 50])
def test_batches_are_old_by_their_largest_timestamp_in_every_version(version: int, cut: int | None) -> None:
    one, two = batch(codec=1), batch(9, offset=3)  # timestamps up to TIME_MS + 4
    whole = body(version, one + two, None, b"", two)
    assert old_bytes(whole, version, LATER_MS, cut) == 2 * (len(one) + 2 * len(two))
    assert old_bytes(whole, version, TIME_MS + 4, cut, elements=1) == 0


@pytest.mark.parametrize(("magic", "share"), [(0, 0), (1, 1)])
def test_messages_of_older_formats_are_old_if_they_have_a_timestamp(magic: int, share: int) -> None:
    records = message_set(magic)
    assert old_bytes(body(4, records), 4, LATER_MS) == share * 2 * len(records)
    assert old_bytes(body(4, records), 4, TIME_MS) == 0


@pytest.mark.parametrize("kept", [1, 12, 20, 43, 60])
def test_a_batch_that_is_cut_off_counts_up_to_the_cut(kept: int) -> None:
    one = batch()
    assert old_bytes(body(11, one + one[:kept]), 11, LATER_MS) == 2 * (len(one) + (kept if kept >= 43 else 0))


def test_a_batch_of_a_false_length_ends_with_its_partition() -> None:
    one = batch()
    for size in (-1, 0, 2**31 - 1):
        false = one[:8] + size.to_bytes(4, signed=True) + one[12:]
        assert old_bytes(body(11, false + one), 11, LATER_MS) == 4 * len(one)
