"""Records that go out and must come back, by any client library."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.clients import Acks, Client, Consumed


def some_messages(count: int, size: int, seed: int = 1) -> list[bytes]:
    """Messages that no compression shrinks and no two of which are alike."""
    source = random.Random(seed)
    return [source.randbytes(size) for _ in range(count)]


def assert_arrived(acks: Acks, consumed: Consumed, messages: list[bytes]) -> None:
    """Each message is there once, unchanged, and in order wherever the clients themselves keep it.

    With acks=0 they do not; on 0.10.2.2 without Weir, kafka-python 3.0.12 queued what it could not hand to
    its connection again, behind what came later (9 runs in 25, with max_in_flight_requests 1 as well), and
    librdkafka 2.16.0 sent its second batch before its first (3 runs in 60).
    """
    if acks == 0:
        assert sorted(consumed.values) == sorted(messages)
    else:
        assert consumed.values == messages
    assert [record.offset for record in consumed.records] == list(range(len(messages)))


def assert_exchanged(
    client: Client,
    bootstrap: str,
    topic: str,
    messages: list[bytes],
    *,
    acks: Acks = "all",
    config: Mapping[str, Any] | None = None,
) -> None:
    """The client sends messages to an empty topic and reads them; `config` is the producer's."""
    produced = client.produce(bootstrap, topic, messages, acks=acks, config=config)
    consumed = client.consume(bootstrap, topic, len(messages))
    assert_arrived(acks, consumed, messages)
    assert (produced.throttle_max_ms, consumed.throttle_max_ms) == (0, 0)


def assert_group_goes_on(client: Client, bootstrap: str, topic: str) -> None:
    """A second consumer of a group begins where the first one, which has left, has committed."""
    first, second = some_messages(300, 100), some_messages(300, 100, seed=2)
    seen = []
    for messages in (first, second):
        client.produce(bootstrap, topic, messages)
        seen += client.consume(bootstrap, topic, len(messages), group=topic).values
    assert seen == first + second


@contextmanager
def part(name: str) -> Iterator[None]:
    """A failure within tells in which part of a test it was."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the part {name!r} of the test")
        raise
