"""The increase of a worker's counters, which the supervisor adds to its own, so that metrics are one sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from weir.proxy import logs
from weir.proxy.close_reasons import CloseReason
from weir.proxy.control.slices import slices
from weir.proxy.control.snapshots.elsewhere import Elsewhere
from weir.proxy.control.snapshots.traffic import count_throttled, waits_for_broker
from weir.proxy.control.throttled import SLICE
from weir.proxy.counters import Counters
from weir.proxy.net.latency import Histogram, Latencies
from weir.proxy.net.reactor import Reactor, Turns
from weir.proxy.server.data_plane import DataPlane
from weir.quotas import QuotaKey

K = TypeVar("K")

_NUMBERS: Final = (
    "sessions_opened",
    "unforwarded_bytes",
    "requests_not_understood",
    "topics_unnamed",
    "throttles",
    "names_hidden",
    "wrong_nodes",
)
_BY_API: Final = ("requests_unread", "protected_refused")
_BY_NAME: Final = ("authentications_succeeded", "authentications_failed", "task_failures", "not_offered")


class Counts(msgspec.Struct, frozen=True):
    """Counters of a worker since its start, or their increase since an earlier reading."""

    connections: dict[int | None, int]
    """Present number of open connections by node id."""
    buffered_bytes: int
    """Present number of bytes read and not sent yet."""
    numbers: list[int]
    by_api: list[dict[int, int]]
    by_name: list[dict[str, int]]
    closed: list[tuple[str, int | None, int]]
    """(Close reason, node id, number) of connections that have ended."""
    from_clients: dict[int | None, int]
    from_brokers: dict[int | None, int]
    exempt_us: dict[int | None, int]
    requests: list[tuple[int, int, int]]
    """(API key, version, number)."""
    turns: list[int]
    """Number, time (µs), longer ones, then the buckets."""
    longest_us: int
    histograms: list[list[int]]
    """Sum (µs) and then the buckets of each histogram of latencies."""
    waiting: dict[int | None, int] = {}
    """Present number of connections that wait for a response of the broker, by node id."""
    throttled: dict[QuotaKey | None, int] = {}
    """Present number of connections that wait for the end of a throttle time, by quota."""
    reading_stopped: bool = False
    """True while no client is read because of `buffered_bytes_max`."""
    reading_stops: int = 0
    """Number of times that reading from clients has stopped because of `buffered_bytes_max`."""
    log_lines_lost: int = 0


def read(plane: DataPlane, reactor: Reactor) -> Generator[None, None, Counts]:
    """Return the counters of this process since its start. Bytes include those of open connections. Yield
    between steps of about a millisecond.
    """
    counters, turns, buffered = plane.counters, reactor.turns, reactor.buffered
    from_clients, from_brokers = Counter(counters.bytes_from_clients), Counter(counters.bytes_from_brokers)
    connections: Counter[int | None] = Counter()
    waiting: Counter[int | None] = Counter()
    throttled: Counter[QuotaKey | None] = Counter()
    for part in slices(list(plane.relays.items()), SLICE // 2):
        for relay, opened in part:
            of_client, of_broker = relay.received_bytes
            from_clients[opened.node_id] += of_client
            from_brokers[opened.node_id] += of_broker
            opened.rates.read(reactor.now_ms, of_client, of_broker)
            connections[opened.node_id] += 1
            waiting[opened.node_id] += waits_for_broker(relay.connection, reactor.now_ms)
            count_throttled(relay.connection, reactor.now_ms, throttled)
        yield
    return Counts(
        connections=connections,
        waiting=waiting,
        throttled=throttled,
        buffered_bytes=buffered.bytes,
        reading_stopped=buffered.full,
        reading_stops=buffered.stops,
        log_lines_lost=logs.lost_lines(),
        numbers=[getattr(counters, name) for name in _NUMBERS],
        by_api=[dict(getattr(counters, name)) for name in _BY_API],
        by_name=[{str(key): n for key, n in getattr(counters, name).items()} for name in _BY_NAME],
        closed=[(str(reason), node_id, count) for (reason, node_id), count in counters.closed_at.items()],
        from_clients=from_clients,
        from_brokers=from_brokers,
        exempt_us=dict(counters.exempt_us),
        requests=[(api, number, count) for (api, number), count in plane.requests().items()],
        turns=[turns.number, turns.busy_us, turns.longer, *turns.within],
        longest_us=turns.longest_us,
        histograms=[[each.sum_us, *each.within] for each in _histograms(reactor.latencies)],
    )


def increase(now: Counts, before: Counts | None) -> Counts:
    """Return the increase from `before` (None for the start) to `now`."""
    if before is None:
        return now
    closed = {(reason, node_id): count for reason, node_id, count in before.closed}
    requests = {(api, number): count for api, number, count in before.requests}
    return msgspec.structs.replace(
        now,
        numbers=_less(now.numbers, before.numbers),
        by_api=[_grown(new, old) for new, old in zip(now.by_api, before.by_api, strict=True)],
        by_name=[_grown(new, old) for new, old in zip(now.by_name, before.by_name, strict=True)],
        closed=[(why, node, n - closed.get((why, node), 0)) for why, node, n in now.closed],
        from_clients=_grown(now.from_clients, before.from_clients),
        from_brokers=_grown(now.from_brokers, before.from_brokers),
        exempt_us=_grown(now.exempt_us, before.exempt_us),
        requests=[(api, number, n - requests.get((api, number), 0)) for api, number, n in now.requests],
        turns=_less(now.turns, before.turns),
        reading_stops=now.reading_stops - before.reading_stops,
        log_lines_lost=now.log_lines_lost - before.log_lines_lost,
        histograms=[_less(*both) for both in zip(now.histograms, before.histograms, strict=True)],
    )


def add(counts: Counts, plane: DataPlane, turns: Turns, latencies: Latencies) -> None:
    """Add an increase to the counters of this process."""
    counters = plane.counters
    for name, number in zip(_NUMBERS, counts.numbers, strict=True):
        setattr(counters, name, getattr(counters, name) + number)
    for names, increases in ((_BY_API, counts.by_api), (_BY_NAME, counts.by_name)):
        for name, increased in zip(names, increases, strict=True):
            getattr(counters, name).update(increased)
    _add_connections(counts, counters)
    plane.elsewhere.requests.update({(api, number): n for api, number, n in counts.requests})
    plane.elsewhere.reading_stops += counts.reading_stops
    plane.elsewhere.log_lines_lost += counts.log_lines_lost
    turns.number += counts.turns[0]
    turns.busy_us += counts.turns[1]
    turns.longer += counts.turns[2]
    turns.within = _more(turns.within, counts.turns[3:])
    turns.longest_us = max(turns.longest_us, counts.longest_us)
    for histogram, increased_by in zip(_histograms(latencies), counts.histograms, strict=True):
        histogram.sum_us += increased_by[0]
        histogram.within = _more(histogram.within, increased_by[1:])


def sum_up(latest: Iterable[Counts], elsewhere: Elsewhere) -> None:
    """Set the present states (open connections, buffered bytes) to the sums over the latest reports of all
    workers.
    """
    present = list(latest)
    elsewhere.connections = sum((Counter(each.connections) for each in present), Counter())
    elsewhere.waiting = sum((Counter(each.waiting) for each in present), Counter())
    elsewhere.throttled = sum((Counter(each.throttled) for each in present), Counter())
    elsewhere.buffered_bytes = sum(each.buffered_bytes for each in present)
    elsewhere.reading_stopped = any(each.reading_stopped for each in present)


def _add_connections(counts: Counts, counters: Counters) -> None:
    for reason, node_id, count in counts.closed:
        counters.closed_at[CloseReason(reason), node_id] += count
    counters.bytes_from_clients.update(counts.from_clients)
    counters.bytes_from_brokers.update(counts.from_brokers)
    counters.exempt_us.update(counts.exempt_us)


def _histograms(latencies: Latencies) -> Iterable[Histogram]:
    return latencies.forward, *latencies.answers.values()


def _less(new: Sequence[int], old: Sequence[int]) -> list[int]:
    return [after - before for after, before in zip(new, old, strict=True)]


def _more(new: Sequence[int], old: Sequence[int]) -> list[int]:
    return [after + before for after, before in zip(new, old, strict=True)]


def _grown(new: dict[K, int], old: dict[K, int]) -> dict[K, int]:
    return {key: count - old.get(key, 0) for key, count in new.items()}
