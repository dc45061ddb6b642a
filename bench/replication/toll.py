"""Measure the time that replication quotas add to a fetch, in Weir's own code:
`python -m bench.replication.toll`.

One process feeds the fetches of a follower, and their responses, to Weir's connection code, without sockets.
The fastest round of each cell counts. The cost of sockets and the kernel is equal in all columns, and is not
included. `--profile ROW` prints the functions that take the time instead, with all replicas throttled.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
import time
from collections.abc import Callable
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from bench.canned import REPLICATED, SESSION_ID, TOPICS, Answers
from bench.replication.follower import SESSION_ID as PLACEHOLDER
from bench.replication.leader import LEADER
from bench.replication.rows import ROWS, FollowerRow
from bench.replication.targets import throttles
from bench.toll import BYTES
from tests.proxy.wire import Wire, new_connection
from weir.protocol.framing import LENGTH
from weir.proxy.connection.connection import Connection
from weir.proxy.handlers.replication.replica_fetcher import ReplicaFetcher, ReplicaFetches
from weir.proxy.handlers.replication.replication import Replication
from weir.quotas import QuotaTable, parse
from weir.quotas.replication.replication_quotas import ReplicationQuotas
from weir.quotas.replication.throttles import NO_THROTTLES, ReplicationThrottles

FETCHES: Final = 200
CHUNK_BYTES: Final = 256 * 1024
GAP_US: Final = 1000
"""Time (µs) between two fetches."""
ANSWERS: Final = Answers(9092)


def _consumer() -> Connection:
    return new_connection(QuotaTable(BYTES))


def _replica(listed: ReplicationThrottles) -> Callable[[], Connection]:
    def make() -> Connection:
        replication = Replication(ReplicationQuotas(listed))
        replication.topic_names = {topic_id.bytes: name for name, topic_id in REPLICATED.items()}
        connection = new_connection(QuotaTable(BYTES), brokers=frozenset(), node_id=LEADER)
        connection.state_of(ReplicaFetches).fetcher = ReplicaFetcher(replication, LEADER)
        connection.client.is_broker = True
        return connection

    return make


LISTED: Final = parse(throttles()).replication
COLUMNS: Final[dict[str, Callable[[], Connection]]] = {
    "consumer": _consumer,
    "not throttled": _replica(NO_THROTTLES),
    "all replicas throttled": _replica(LISTED),
}
"""Functions that make the connection, by column."""


class Fetching:
    """A follower, Weir's connection, and a leader."""

    def __init__(self, row: FollowerRow, connection: Connection) -> None:
        full, incremental = row.frames(TOPICS)
        Wire(connection).exchange(0, full, ANSWERS.frame(full))
        self._connection = connection
        self._frame = bytearray(incremental.replace(PLACEHOLDER, SESSION_ID.to_bytes(4, "big"), 1))
        self._epoch_at = incremental.index(PLACEHOLDER) + LENGTH.size
        self._epoch = 0
        self._answer = ANSWERS.frame(bytes(self._frame))
        self._response = bytearray(CHUNK_BYTES)

    def fetch(self) -> None:
        """Send an incremental fetch, and its response."""
        self._epoch += 1
        LENGTH.pack_into(self._frame, self._epoch_at, self._epoch)
        self._exchange(bytearray(self._frame), self._answer)

    def _exchange(self, request: bytearray, answer: bytes) -> None:
        connection, response = self._connection, self._response
        connection.clock.now_us += GAP_US
        now_ms = connection.clock.now_us // 1000
        connection.clock.turn += 1
        connection.receive(connection.client_end, request, memoryview(request), len(request), now_ms)
        connection.effects.to_broker.clear()
        for start in range(0, len(answer), CHUNK_BYTES):
            part = answer[start : start + CHUNK_BYTES]
            response[: len(part)] = part
            connection.receive(connection.broker_end, response, memoryview(response), len(part), now_ms)
            connection.effects.to_client.clear()
        if connection.violation is not None or connection.in_flight:
            raise AssertionError(f"{connection.violation}, {len(connection.in_flight)} in flight")


def us_per_fetch(row: FollowerRow, make: Callable[[], Connection]) -> float:
    """Return the mean CPU time (µs) of an incremental fetch and its response in one round."""
    fetching = Fetching(row, make())
    gc.collect()
    begun_ns = time.process_time_ns()
    for _number in range(FETCHES):
        fetching.fetch()
    return (time.process_time_ns() - begun_ns) / 1000 / FETCHES


def _profile(row: FollowerRow) -> None:
    fetching = Fetching(row, _replica(LISTED)())
    profile = cProfile.Profile()
    profile.enable()
    for _number in range(FETCHES):
        fetching.fetch()
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


@click.command(help=__doc__)
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(1))
@click.option("--profile", type=click.Choice([row.name for row in ROWS]))
def main(rounds: int, profile: str | None) -> None:
    if profile is not None:
        _profile(next(row for row in ROWS if row.name == profile))
        return
    best: dict[tuple[str, str], float] = {}
    for _round in range(rounds):
        for row in ROWS:
            for name, make in COLUMNS.items():
                took_us = us_per_fetch(row, make)
                best[row.title, name] = min(took_us, best.get((row.title, name), took_us))
    table = Table(title="µs per fetch, in process")
    for column in ("row", *COLUMNS):
        table.add_column(column, justify="left" if column == "row" else "right")
    for row in ROWS:
        table.add_row(row.title, *(f"{best[row.title, name]:.1f}" for name in COLUMNS))
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    main()
