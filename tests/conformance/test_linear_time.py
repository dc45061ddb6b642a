"""A frame of 10 MB takes twice the work and twice the memory of one of 5 MB, in the codec and in `verify`.

Work is counted, not timed. The frames have as many nested, empty elements as their size permits.
"""

from __future__ import annotations

import multiprocessing
import resource
import struct
from typing import TYPE_CHECKING, Final

import pytest

from tests.conformance.captures import nested, sent
from tests.fuzz.work import peak_bytes, steps
from tests.wire.frames import framed
from weir.conformance.verify import R, verify
from weir.protocol.codec import codec
from weir.protocol.messages import MetadataRequest, ProduceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pytestmark = pytest.mark.timeout(1200)
"""The longest test takes a minute on a free core, which is ten minutes on a busy machine."""
HALF, WHOLE = 5_000_000, 10_000_000
"""Sizes (bytes) of the frames."""
GROWTH_MAX: Final = 2.1
"""Maximum ratio of the work, and of the memory, for twice the bytes."""
STEPS_PER_BYTE: Final = {"decode": 25, "verify": 50}
"""Maximum number of steps for a byte. Each element has two or three bytes."""
BYTES_PER_BYTE: Final = {"decode": 60, "verify": 3}
"""Maximum memory (bytes) for a byte. Three bytes are decoded to a struct and its list; `verify` builds no
values of such a frame.
"""
READ_BYTES: Final = 65536
"""Maximum size (bytes) of the data of an event."""
HEAD_BYTES: Final = 15
"""Size (bytes) of the length and the header before the body, without tags: the client-id has one byte."""


def empty_topics(size: int) -> bytes:
    """A produce request of topics without names and partitions, three bytes each."""
    return nested(size // 3)


def empty_names(size: int) -> bytes:
    """A metadata request of empty names, two bytes each, in a version without compact lengths."""
    count = size // 2
    return framed(struct.pack(">hhihci", 3, 0, 1, 1, b"a", count) + bytes(2 * count))


FRAMES: Final[Mapping[str, Callable[[int], bytes]]] = {"topics": empty_topics, "names": empty_names}


def decode(name: str, frame: bytes) -> None:
    """Decode the body of a frame."""
    if name == "topics":
        codec(ProduceRequest, 9).decode(frame, HEAD_BYTES + 1)
    else:
        codec(MetadataRequest, 0).decode(frame, HEAD_BYTES)


def check(_name: str, frame: bytes) -> None:
    """Verify a frame. A note says that a large one has too many values; nothing else is found."""
    parts = (sent(frame[at : at + READ_BYTES]) for at in range(0, len(frame), READ_BYTES))
    assert {found.rule for found in verify(parts)} <= {R.CONTENTS_UNCHECKED}


WAYS: Final[Mapping[str, Callable[[str, bytes], None]]] = {"decode": decode, "verify": check}


def decoded_peak_bytes(name: str, size: int) -> int:
    """Maximum memory (bytes) of this process while it decodes a frame, without the memory before.

    tracemalloc would take a minute, and a gigabyte for its own records.
    """
    frame = FRAMES[name](size)
    decode(name, FRAMES[name](size // 1000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    decode(name, frame)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_frame_of_10_mb_takes_twice_the_steps_of_one_of_5_mb(way: str) -> None:
    half, whole = (empty_topics(size) for size in (HALF, WHOLE))
    less, more = steps(lambda: WAYS[way]("topics", half)), steps(lambda: WAYS[way]("topics", whole))
    assert more <= GROWTH_MAX * less
    assert more <= STEPS_PER_BYTE[way] * WHOLE


@pytest.mark.slow
@pytest.mark.parametrize("name", FRAMES)
def test_decoding_10_mb_takes_twice_the_memory_of_5_mb(name: str) -> None:
    """Each frame has a process of its own, because the maximum memory of a process never falls."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        less, more = (pool.apply(decoded_peak_bytes, (name, size)) for size in (HALF, WHOLE))
    assert more <= GROWTH_MAX * less
    assert more <= BYTES_PER_BYTE["decode"] * WHOLE


@pytest.mark.slow
@pytest.mark.parametrize("name", FRAMES)
def test_verifying_10_mb_takes_twice_the_memory_of_5_mb(name: str) -> None:
    half, whole = (FRAMES[name](size) for size in (HALF, WHOLE))
    less, more = peak_bytes(lambda: check(name, half)), peak_bytes(lambda: check(name, whole))
    assert more <= GROWTH_MAX * less
    assert more <= BYTES_PER_BYTE["verify"] * WHOLE
