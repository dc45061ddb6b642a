"""Whatever the bytes: a message or a ProtocolError, nothing else, soon, and without much memory."""

from __future__ import annotations

import random
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tests.protocol.generate import each_version, every_version, sample
from tests.protocol.mutate import mutate
from weir.protocol.codec import Codec, codec
from weir.protocol.errors import ProtocolError
from weir.protocol.messages import OffsetFetchRequest
from weir.protocol.values import Message

VERSIONS = every_version()
MUTATIONS = 60
PEAK_PER_BYTE = 150
"""The smallest structs take three bytes on the wire, and a few hundred as objects."""
SECONDS_MAX = 5.0
"""For one version's mutations; they take some 20 ms, but this machine may be busy."""


def decodes(subject: Codec[Any], data: bytes) -> bool:
    """Whether these are a message's bytes; then the message has bytes too, and they decode to the same
    message."""
    error = failure(subject, data)
    if error is not None:
        assert (error.api, error.version) == (subject.layout.name, subject.version)
        assert 0 <= error.offset <= len(data)
        assert error.reason
        return False
    again = subject.encode(subject.decode(data))
    assert subject.encode(subject.decode(again)) == again
    return True


def failure(subject: Codec[Any], data: bytes) -> ProtocolError | None:
    try:
        subject.decode(data)
    except ProtocolError as error:
        return error
    return None


@each_version(VERSIONS)
def test_every_truncation_is_a_protocol_error(message: type[Message], version: int) -> None:
    subject = codec(message, version)
    whole = subject.encode(sample(message, version))
    assert decodes(subject, whole)
    for end in range(len(whole)):
        assert not decodes(subject, whole[:end])
    assert not decodes(subject, whole + b"\0")


@each_version(VERSIONS)
def test_mutated_bytes_are_a_message_or_a_protocol_error(message: type[Message], version: int) -> None:
    subject, source = codec(message, version), random.Random(f"{message.__name__} {version}")
    whole = subject.encode(sample(message, version))
    started = time.perf_counter()
    for _ in range(MUTATIONS):
        decodes(subject, mutate(whole, source))
    assert time.perf_counter() - started < SECONDS_MAX


@examples(300)
@given(which=st.sampled_from(VERSIONS), data=st.binary(max_size=200))
def test_noise_is_a_message_or_a_protocol_error(which: tuple[type[Message], int], data: bytes) -> None:
    decodes(codec(*which), data)


@pytest.mark.parametrize("filler", [b"\0", b"\1", b"\2", b"\x7f", b"\xff"])
def test_memory_is_in_proportion_to_the_bytes(filler: bytes) -> None:
    for message, version in VERSIONS:
        assert peak_bytes(codec(message, version), filler * 20_000) < 20_000 * PEAK_PER_BYTE, message


def test_memory_is_in_proportion_for_the_smallest_elements_there_are() -> None:
    subject = codec(OffsetFetchRequest, 8)
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(topics=None) for _ in range(5_000)]
    data = subject.encode(OffsetFetchRequest(groups=groups))
    assert len(data) < 5_000 * 3 + 10
    assert peak_bytes(subject, data) < len(data) * PEAK_PER_BYTE


def peak_bytes(subject: Codec[Any], data: bytes) -> int:
    tracemalloc.start()
    failure(subject, data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
