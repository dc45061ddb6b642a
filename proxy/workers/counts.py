"""The counters of a worker, which the supervisor adds up, so that metrics are one sum."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Generator, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, fields
from typing import Final, Protocol, TypeAlias

from weir.proxy import logs
from weir.proxy.control.slices import slices
from weir.proxy.control.snapshots.gauges import Gauges
from weir.proxy.control.snapshots.traffic import count_throttled, waits_for_broker
from weir.proxy.control.throttled import SLICE
from weir.proxy.counters import Counters
from weir.proxy.net.latency import Histogram, Latencies
from weir.proxy.net.reactor import Reactor, Turns
from weir.proxy.server.data_plane import DataPlane

_NAMES: Final = tuple(field.name for field in fields(Counters) if field.name != "sessions_open")
Count: TypeAlias = int | Counter[Hashable]


class CounterSums(Protocol):
    """The supervisor's sums."""

    counters: Counters
    turns: Turns
    latencies: Latencies


@dataclass(frozen=True)
class WorkerCounts:
    """Counters of a worker since its start, or their increase since an earlier reading; its gauges."""

    counters: dict[str, Count]
    """By attribute of `Counters`."""
    turns: list[int]
    """Number, time (µs), longer ones, then the buckets."""
    longest_us: int
    histograms: list[list[int]]
    """Sum (µs) and then the buckets of each histogram of latencies."""
    gauges: Gauges

    def pickled(self) -> bytes:
        """Return bytes for `loaded`."""
        return pickle.dumps(self)


def loaded(pickled: bytes) -> WorkerCounts:
    """Return the counts that `pickled` has turned into these bytes."""
    counts: WorkerCounts = pickle.loads(pickled)  # noqa: S301  # a worker's
    return counts


def read(plane: DataPlane, reactor: Reactor) -> Generator[None, None, WorkerCounts]:
    """Return the counters of a worker since its start. Bytes include those of open connections. Yield
    between steps of about a millisecond.
    """
    buffered, turns = reactor.buffered, reactor.turns
    counters = {name: copy(getattr(plane.counters, name)) for name in _NAMES}
    counters["requests"] = plane.requests()
    counters["reading_stops"] = buffered.stops
    counters["log_lines_lost"] = logs.lost_lines()
    gauges = Gauges(buffered_bytes=buffered.bytes, reading_stopped=buffered.full)
    from_clients, from_brokers = counters["bytes_from_clients"], counters["bytes_from_brokers"]
    for part in slices(list(plane.relays.items()), SLICE // 2):
        for relay, opened in part:
            of_client, of_broker = relay.received_bytes
            from_clients[opened.node_id] += of_client
            from_brokers[opened.node_id] += of_broker
            opened.rates.read(reactor.now_ms, of_client, of_broker)
            gauges.connections[opened.node_id] += 1
            gauges.waiting[opened.node_id] += waits_for_broker(relay.connection, reactor.now_ms)
            count_throttled(relay.connection, reactor.now_ms, gauges.throttled)
        yield
    return WorkerCounts(
        counters=counters,
        turns=[turns.number, turns.busy_us, turns.longer, *turns.within],
        longest_us=turns.longest_us,
        histograms=[[each.sum_us, *each.within] for each in _histograms(reactor.latencies)],
        gauges=gauges,
    )


def increase(now: WorkerCounts, before: WorkerCounts | None) -> WorkerCounts:
    """Return the increase from `before` (None for the start) to `now`."""
    if before is None:
        return now
    return WorkerCounts(
        counters={name: _grown(count, before.counters[name]) for name, count in now.counters.items()},
        turns=_less(now.turns, before.turns),
        longest_us=now.longest_us,
        histograms=[_less(*both) for both in zip(now.histograms, before.histograms, strict=True)],
        gauges=now.gauges,
    )


def add(counts: WorkerCounts, totals: CounterSums) -> None:
    for name, grown in counts.counters.items():
        if isinstance(grown, int):
            setattr(totals.counters, name, getattr(totals.counters, name) + grown)
        else:
            getattr(totals.counters, name).update(grown)
    turns = totals.turns
    turns.number += counts.turns[0]
    turns.busy_us += counts.turns[1]
    turns.longer += counts.turns[2]
    turns.within = _more(turns.within, counts.turns[3:])
    turns.longest_us = max(turns.longest_us, counts.longest_us)
    for histogram, grown_by in zip(_histograms(totals.latencies), counts.histograms, strict=True):
        histogram.sum_us += grown_by[0]
        histogram.within = _more(histogram.within, grown_by[1:])


def _grown(now: Count, before: Count) -> Count:
    """Return the increase of a counter."""
    if isinstance(now, int):
        assert isinstance(before, int)
        return now - before
    assert isinstance(before, Counter)
    return Counter({key: count - before[key] for key, count in now.items() if count != before[key]})


def _histograms(latencies: Latencies) -> Iterable[Histogram]:
    return latencies.forward, *latencies.answers.values()


def _less(new: Sequence[int], old: Sequence[int]) -> list[int]:
    return [after - before for after, before in zip(new, old, strict=True)]


def _more(new: Sequence[int], old: Sequence[int]) -> list[int]:
    return [after + before for after, before in zip(new, old, strict=True)]
