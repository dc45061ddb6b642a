"""The workloads on which estimates are judged: realistic clients, some with several kinds of requests at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.request_time import scripts
from bench.request_time.book import Book
from bench.request_time.calls import Script, again
from bench.request_time.topics import BIG, EMPTY, PARTITIONS, SMALL, WIDE, Data
from weir.protocol import ApiKey

ONE: Final = 1
EIGHT: Final = 8
MANY: Final = 16
LONG_POLL_MS: Final = 500
CONVERTED_VERSION: Final = 3

Make = Callable[[Book, Data, str], Sequence[Script]]


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload of one client. `make` returns one script per connection, for a client's name."""

    name: str
    make: Make
    overloaded: bool = False
    """True if the workload exceeds the broker's capacity; then no target applies."""
    idle: bool = False
    """True if the requests mostly wait at the broker. Such a workload is judged by its load on a thread, not
    by the ratio of the times.
    """
    compressed: bool = False
    needs: Callable[[Book, Data], bool] = lambda _book, _data: True
    """Function that returns True if the broker supports the workload."""


def _produce(batch: str, connections: int, **options: object) -> Make:
    def make(book: Book, data: Data, client: str) -> list[Script]:
        call = book.produce(client, getattr(data, batch), **options)  # type: ignore[arg-type]  # its own
        return [again(call) for _ in range(connections)]

    return make


def _apart(book: Book, data: Data, client: str) -> list[Script]:
    """Return scripts that produce large batches to a different partition on each connection, so that no
    connection waits for another one's lock.
    """
    return [again(book.produce(client, data.large, indexes=(index,))) for index in range(EIGHT)]


def _compressed(codec: str, text: str) -> Workload:
    def make(book: Book, data: Data, client: str) -> list[Script]:
        return [again(book.produce(client, data.compressed[codec, text]))]

    return Workload(
        f"produce-{codec}-{text}",
        make,
        compressed=True,
        needs=lambda _book, data: (codec, text) in data.compressed,
    )


def _hot(connections: int, *, big: bool) -> Make:
    return lambda book, _data, client: [again(book.hot(client, big=big)) for _ in range(connections)]


def _converted(topic: str) -> Workload:
    def make(book: Book, _data: Data, client: str) -> list[Script]:
        return [again(book.fetch(client, topic, version=CONVERTED_VERSION, converted=True))]

    return Workload(
        f"fetch-converted-{topic}",
        make,
        needs=lambda book, _data: book.broker_versions.speaks(ApiKey.FETCH, CONVERTED_VERSION),
    )


def _session(
    name: str, partitions: int, connections: int, *, max_wait_ms: int = 0, idle: bool = False
) -> Workload:
    def make(book: Book, _data: Data, client: str) -> list[Script]:
        return [
            scripts.fetch_session(book, client, partitions, rest=client, max_wait_ms=max_wait_ms)
            for _ in range(connections)
        ]

    return Workload(
        name, make, idle=idle, needs=lambda book, _data: book.broker_versions.version(ApiKey.FETCH) >= 7
    )


def _long_polls(book: Book, _data: Data, client: str) -> list[Script]:
    call = book.fetch(client, EMPTY, max_wait_ms=LONG_POLL_MS)
    return [again(call) for _ in range(MANY)]


def _members(connections: int) -> Make:
    return lambda book, _data, client: [
        scripts.membership(book, client, f"{client}-{index}") for index in range(connections)
    ]


def _commits(connections: int) -> Make:
    return lambda book, _data, client: [
        again(book.commit(client, client, range(3)), book.committed(client, client))
        for _ in range(connections)
    ]


def _mixed(book: Book, data: Data, client: str) -> list[Script]:
    """Return the scripts of five connections: two producers, two consumers that commit, and one that only
    queries.
    """
    consumer = [book.hot(client, big=True)] * 5 + [book.commit(client, client), book.hot(client, big=False)]
    asker = [book.metadata(client), book.list_offsets(client), book.metadata(client, tuple(PARTITIONS))]
    return [
        again(book.produce(client, data.medium, acks=-1)),
        again(book.produce(client, data.small, indexes=range(4))),
        again(*consumer),
        again(*consumer),
        again(*asker),
    ]


def _overload(book: Book, data: Data, client: str) -> list[Script]:
    """Return sixteen scripts of expensive requests without pauses, which together exceed the broker's
    capacity.
    """
    kinds = [
        again(book.produce(client, data.medium, acks=-1, indexes=range(8))),
        again(book.produce(client, data.large)),
        again(book.fetch(client, EMPTY, range(100))),
        again(book.hot(client, big=True)),
    ]
    more = [
        [
            again(book.produce(client, data.medium, acks=-1, indexes=range(8))),
            again(book.produce(client, data.small)),
            again(book.fetch(client, EMPTY, range(100))),
            again(book.metadata(client)),
        ]
        for _ in range(3)
    ]
    return kinds + [script for scripts_ in more for script in scripts_]


WORKLOADS: Final[tuple[Workload, ...]] = (
    Workload("produce-small", _produce("small", ONE)),
    Workload("produce-small-8", _produce("small", EIGHT)),
    Workload("produce-medium", _produce("medium", ONE)),
    Workload("produce-medium-8", _produce("medium", EIGHT)),
    Workload("produce-large", _produce("large", ONE)),
    Workload("produce-large-8", _produce("large", EIGHT)),
    Workload("produce-large-8-apart", _apart),
    Workload("produce-all", _produce("small", ONE, acks=-1)),
    Workload("produce-all-medium-8", _produce("medium", EIGHT, acks=-1)),
    Workload("produce-wide", _produce("small", ONE, topic=WIDE, indexes=range(50))),
    Workload("fetch-small", _hot(ONE, big=False)),
    Workload("fetch-small-8", _hot(EIGHT, big=False)),
    Workload("fetch-large", _hot(ONE, big=True)),
    Workload("fetch-large-8", _hot(EIGHT, big=True)),
    Workload("fetch-wide", lambda book, _data, client: [again(book.fetch(client, EMPTY, range(200)))]),
    _session("fetch-session-500", 500, ONE),
    Workload("long-polls-16", _long_polls, idle=True),
    _session("long-poll-session-500", 500, ONE, max_wait_ms=LONG_POLL_MS, idle=True),
    Workload("metadata", lambda book, _data, client: [again(book.metadata(client))]),
    Workload("metadata-8", lambda book, _data, client: [again(book.metadata(client)) for _ in range(EIGHT)]),
    Workload("metadata-large", lambda book, _data, client: [again(book.metadata(client, tuple(PARTITIONS)))]),
    Workload("membership", _members(ONE)),
    Workload("membership-8", _members(EIGHT)),
    Workload("commits", _commits(ONE)),
    Workload("commits-8", _commits(EIGHT)),
    Workload("mixed", _mixed),
    Workload("overload-16", _overload, overloaded=True),
    *(_compressed(codec, text) for codec in ("gzip", "snappy", "lz4", "zstd") for text in ("zeros", "words")),
    _converted(SMALL),
    _converted(BIG),
)
