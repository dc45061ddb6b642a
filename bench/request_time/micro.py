"""The cases of `--measure`: requests of one API at a time, in several sizes, so that the API's coefficients
can be fitted separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.request_time import scripts
from bench.request_time.book import Book
from bench.request_time.calls import Call, Script, again
from bench.request_time.runner import Case
from bench.request_time.topics import BIG, EMPTY, PARTITIONS, SMALL, WIDE, Batch, Data
from weir.protocol import ApiKey

MANY: Final = range(100)
SETUP: Final = "aside"
"""Suffix of the names of clients that only prepare a measurement; their requests are not used for fitting."""
FEW: Final = 1
SOME: Final = 4
SLOW: Final = 8
"""Number of connections for requests that wait for something other than the broker's threads, such as
transactions.
"""
PATIENCE: Final = 5.0
COLD_PREFIX: Final = "cold-"
SESSION_PREFIX: Final = "fetch-session-"
CONVERTED_VERSION: Final = 3
GAPS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.02)


Make = Callable[[str], Call]
"""Function that builds a call of the client with the given name."""


@dataclass(frozen=True, slots=True)
class _Cases:
    """Makes cases in which the client's name is the name of the case."""

    book: Book
    data: Data

    def each(self, name: str, make: Make, connections: Sequence[int]) -> Iterator[Case]:
        """Yield a case for each number of connections; every connection repeats the same call."""
        for number in connections:
            client = f"{name}-{number}"
            call = make(client)
            yield Case(client, partial(_repeat, call, number))


def _repeat(call: Call, connections: int) -> list[Script]:
    return [again(call) for _ in range(connections)]


def _empty(book: Book, partitions: int) -> Make:
    return lambda client: book.fetch(client, EMPTY, range(partitions))


def _converted(book: Book, topic: str) -> Make:
    return lambda client: book.fetch(client, topic, version=CONVERTED_VERSION, converted=True)


def _writing(book: Book, batch: Batch) -> Make:
    return lambda client: book.produce(client, batch)


def _paused(book: Book, make: Make, pause_s: float) -> Make:
    return lambda client: book.paused(make(client), pause_s)


def _apart(book: Book, client: str, batch: Batch) -> list[Script]:
    """Return scripts that produce to a different partition on each connection, because waiting for a
    partition's lock is not part of a request's cost. Large batches are not measured this way: four
    connections with them would compete for two cores.
    """
    return [again(book.produce(client, batch, indexes=(index,))) for index in range(SOME)]


def _session(book: Book, client: str, partitions: int) -> list[Script]:
    return [scripts.fetch_session(book, client, partitions, rest=f"{client}-{SETUP}")]


def _members_of(book: Book, client: str, connections: int) -> list[Script]:
    return [scripts.membership(book, client, f"{client}-{index}") for index in range(connections)]


def _transactions(book: Book, client: str, partitions: int) -> list[Script]:
    return [scripts.transactions(book, client, f"{client}-{n}", partitions) for n in range(SLOW)]


def _topic_admins(book: Book, client: str, partitions: int) -> list[Script]:
    return [scripts.topic_admin(book, client, f"{client}-{n}", partitions) for n in range(SOME)]


def warm_up(book: Book, data: Data) -> Case:
    """Return a case with all frequent requests, to run before the measurement: code that Java has not
    compiled yet costs many times more.
    """
    client = "warm-up"
    calls = [
        book.produce(client, data.small),
        book.produce(client, data.medium, acks=-1, indexes=range(8)),
        book.produce(client, data.large),
        *(book.produce(client, batch) for batch in data.compressed.values()),
        book.hot(client, big=False),
        book.hot(client, big=True),
        book.fetch(client, EMPTY, MANY),
        book.metadata(client),
        book.metadata(client, tuple(PARTITIONS)),
        book.api_versions(client),
        book.commit(client, "warm-up"),
        book.committed(client, "warm-up"),
        book.list_offsets(client),
    ]
    return Case(
        client,
        lambda: [again(*calls), again(*calls), scripts.membership(book, client, "warm-up-group")],
    )


def cases(book: Book, data: Data) -> Iterator[Case]:
    """Yield all cases, without those of APIs that the broker lacks."""
    yield from _data(_Cases(book, data))
    yield from _compressed(_Cases(book, data))
    yield from _questions(_Cases(book, data))
    yield from _members(book)
    yield from _changes(book)
    yield from _cold(_Cases(book, data))


def _data(make: _Cases) -> Iterator[Case]:
    book, data, each = make.book, make.data, make.each
    both = (FEW, SOME)
    yield from each("produce-small", lambda c: book.produce(c, data.small), both)
    yield from each("produce-medium", lambda c: book.produce(c, data.medium), (FEW,))
    yield from each("produce-large", lambda c: book.produce(c, data.large), (FEW,))
    yield Case("produce-medium-4", partial(_apart, book, "produce-medium-4", data.medium))
    yield from each("produce-large-of-small", lambda c: book.produce(c, data.large_of_small), (FEW,))
    yield from each("produce-all", lambda c: book.produce(c, data.small, acks=-1), both)
    yield from each("produce-all-medium", lambda c: book.produce(c, data.medium, acks=-1), (FEW,))
    yield from each("produce-wide", lambda c: book.produce(c, data.small, indexes=range(16)), both)
    yield from each(
        "produce-very-wide", lambda c: book.produce(c, data.small, topic=WIDE, indexes=MANY), (FEW,)
    )
    yield from each("fetch-small", lambda c: book.hot(c, big=False), both)
    yield from each("fetch-large", lambda c: book.hot(c, big=True), both)
    yield from each("fetch-medium", lambda c: book.fetch(c, BIG, at_most_bytes=16_500), both)
    for count in (10, 100, 500):
        yield from each(f"fetch-empty-{count}", _empty(book, count), (FEW,))
    if book.broker_versions.speaks(ApiKey.FETCH, CONVERTED_VERSION):
        for topic in (SMALL, BIG):
            yield from each(
                f"fetch-converted-{topic}",
                _converted(book, topic),
                (FEW, SOME),
            )
    if book.broker_versions.version(ApiKey.FETCH) >= 7:
        for count in (1, 50, 500):
            name = f"{SESSION_PREFIX}{count}"
            yield Case(name, partial(_session, book, name, count))


def _compressed(make: _Cases) -> Iterator[Case]:
    for (codec, text), batch in make.data.compressed.items():
        yield from make.each(f"produce-{codec}-{text}", _writing(make.book, batch), (FEW,))


def _questions(make: _Cases) -> Iterator[Case]:
    book, each, speaks = make.book, make.each, make.book.broker_versions.speaks
    both = (FEW, SOME)
    yield from each("metadata", book.metadata, both)
    yield from each("metadata-none", lambda c: book.metadata(c, ()), (FEW,))
    yield from each("metadata-wide", lambda c: book.metadata(c, (EMPTY,)), (FEW,))
    yield from each("api-versions", book.api_versions, both)
    yield from each("commit", lambda c: book.commit(c, c), both)
    yield from each("commit-many", lambda c: book.commit(c, c, MANY), (FEW,))
    yield from each("committed", lambda c: book.committed(c, c), both)
    yield from each("committed-many", lambda c: book.committed(c, "commit-many-1", MANY), (FEW,))
    yield from each("list-offsets", book.list_offsets, both)
    yield from each("list-offsets-many", lambda c: book.list_offsets(c, MANY), (FEW,))
    yield from each("find-coordinator", lambda c: book.find_coordinator(c, c), both)
    yield from each("list-groups", book.list_groups, both)
    yield from each("describe-groups", lambda c: book.describe_groups(c, ["commit-1"]), both)
    yield from each(
        "describe-groups-many", lambda c: book.describe_groups(c, [f"{c}-{n}" for n in range(50)]), (FEW,)
    )
    yield from each("describe-configs", lambda c: book.describe_configs(c, [SMALL]), both)
    yield from each("describe-configs-many", lambda c: book.describe_configs(c, list(PARTITIONS)), (FEW,))
    if speaks(ApiKey.OFFSET_FOR_LEADER_EPOCH):
        yield from each("leader-epoch", book.leader_epoch, both)
        yield from each("leader-epoch-many", lambda c: book.leader_epoch(c, MANY), (FEW,))
    if speaks(ApiKey.DESCRIBE_CLUSTER):
        yield from each("describe-cluster", book.describe_cluster, both)


def _members(book: Book) -> Iterator[Case]:
    speaks = book.broker_versions.speaks
    for number in (FEW, SOME):
        name = f"membership-{number}"
        yield Case(name, partial(_members_of, book, name, number))
    yield Case("producer-ids-1", lambda: [scripts.producer_ids(book, "producer-ids-1")])
    for count in (1, 50):
        name = f"transactions-{count}"
        yield Case(name, partial(_transactions, book, name, count), PATIENCE)
    if speaks(ApiKey.CONSUMER_GROUP_HEARTBEAT):
        yield Case(
            "consumer-heartbeats-1",
            lambda: [scripts.consumer_heartbeats(book, "consumer-heartbeats-1", "new-group")],
        )
    if speaks(ApiKey.SHARE_FETCH):
        yield Case(
            "share-heartbeats-1", lambda: [scripts.share_heartbeats(book, "share-heartbeats-1", "share-a")]
        )
        yield Case(
            "share-fetches-1",
            lambda: [scripts.share_fetches(book, "share-fetches-1", "share-b", rest=f"share-{SETUP}")],
        )


def _changes(book: Book) -> Iterator[Case]:
    for count in (1, 20):
        name = f"topic-admin-{count}"
        yield Case(name, partial(_topic_admins, book, name, count), PATIENCE)
    yield Case("config-admin-1", lambda: [scripts.config_admin(book, "config-admin-1")], PATIENCE)
    yield Case("record-deleter-1", lambda: [scripts.record_deleter(book, "record-deleter-1")])


def _cold(make: _Cases) -> Iterator[Case]:
    """Yield cases with pauses before each request, in which the broker is idle."""
    book = make.book
    for gap_s in GAPS_S:
        name = f"{COLD_PREFIX}{gap_s * 1e6:.0f}"
        yield from make.each(name, _paused(book, book.metadata, gap_s), (FEW,))
        yield from make.each(f"{name}-produce", _paused(book, _writing(book, make.data.small), gap_s), (FEW,))
