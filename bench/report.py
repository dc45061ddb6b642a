"""Results as tables of text: which figures are shown, and how they are rounded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bench import sasl
from bench.idle import Idle
from bench.load import Measured
from bench.measure import BUSY, Results
from bench.rows import Row
from bench.stats import Spread, ratios
from bench.targets import Target

REFERENCES: Final = ("haproxy", "kroxylicious", "kafka-proxy")
"""Names of the targets to which Weir is compared: Weir's figures are divided by theirs."""
QUIET: Final = 0.5
"""Load average up to which a machine counts as quiet, with no other work that matters."""
NOTHING: Final = "—"
_MEDIAN: Final = "the median over all rounds (minimum to maximum)"
_MB: Final = 1e6


@dataclass(frozen=True, slots=True)
class Table:
    """One table of text; the first column holds names, the other columns figures."""

    title: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    is_cost: bool = False
    """True for the cost of requests: the page shows this table."""


@dataclass(slots=True)
class Outcome:
    """Results of one run, by part of the benchmark; the results of a part that was not chosen are empty."""

    load: Results
    entities: Results
    tls: Results = field(default_factory=lambda: Results([], []))
    sasl: Results = field(default_factory=lambda: Results([], []))
    idle: dict[str, Idle] = field(default_factory=dict)
    """Measurements with idle connections, by name of the target."""
    load_average: float = field(default_factory=lambda: os.getloadavg()[0])
    """Load average of the minute before anything was started: the work of other programs."""


Figure = Callable[[Row, Target], str]


def page_tables(outcome: Outcome) -> list[Table]:
    """Return the table that the page shows: the cost of requests."""
    return [table for table in _load_tables(outcome.load) if table.is_cost] if outcome.load.cells else []


def tables(outcome: Outcome) -> list[Table]:
    """Return all tables of those parts of the run that have results."""
    found: list[Table] = []
    if outcome.load.cells:
        found += _load_tables(outcome.load)
    if outcome.tls.cells:
        found += [
            replace(table, title=f"Clients speak TLS to the proxy: {table.title}")
            for table in _load_tables(outcome.tls)
        ]
    if outcome.sasl.cells:
        found.append(_sasl_table(outcome.sasl))
    if outcome.entities.cells:
        found += _entity_tables(outcome.entities)
    if outcome.idle:
        found.append(_idle_table(outcome.idle, outcome.load.targets))
    return found


def _load_tables(results: Results) -> Iterable[Table]:
    proxies = [target for target in results.present if _has_cpu(results, target)]
    yield _by_row(
        f"CPU time of the proxy process per request, in µs: {_MEDIAN}",
        results.rows,
        proxies,
        lambda row, target: _spread(_cpu_us(results, row, target)),
        is_cost=True,
    )
    if compared := _comparisons(proxies):
        yield _ratio_table(results, compared)
    yield _by_row(
        "Requests per second once the proxy's busiest process uses a whole core, medians over rounds",
        results.rows,
        proxies,
        lambda row, target: _at_full_core(results.of(row, target)),
    )
    if big := [row for row in results.rows if row.payload_bytes]:
        yield _by_row(
            "CPU µs per MB (10^6 bytes) of records, and MB/s; medians over rounds",
            big,
            proxies,
            lambda row, target: _per_mb(results.of(row, target), row),
        )
    rates = _by_row(
        "Requests per second, and latency p50 / p99 in ms; medians over rounds",
        results.rows,
        results.present,
        lambda row, target: _rate(results.of(row, target)),
    )
    busiest = [_busiest(results, row) for row in results.rows]
    lines = [[*line, busy] for line, busy in zip(rates.lines, busiest, strict=True)]
    yield Table(rates.title, [*rates.head, "load generator's share of a core, with / without a proxy"], lines)


def _sasl_table(results: Results) -> Table:
    lines = [
        [
            row.title,
            *(_spread(_cpu_us(results, row, target)) for target in sasl.TARGETS),
            _ratio(results, row, sasl.SASL, sasl.PLAIN),
            _busiest(results, row).partition(" / ")[0],
        ]
        for row in results.rows
    ]
    head = ["load", *(target.title for target in sasl.TARGETS), "ratio", "load generator's share of a core"]
    return Table(f"CPU time per request of Weir, quotas on, in µs: {_MEDIAN}", head, lines)


def _entity_tables(results: Results) -> Iterable[Table]:
    yield _by_row(
        f"CPU time per request of Weir, by quotas in its table, in µs: {_MEDIAN}",
        results.rows,
        results.targets,
        lambda row, target: _spread(_cpu_us(results, row, target)),
    )
    yield _by_row(
        "Memory (RSS) of Weir in MB at the end of the last round",
        results.rows,
        results.targets,
        lambda row, target: _memory(results.of(row, target)),
    )


def _idle_table(idle: Mapping[str, Idle], targets: Sequence[Target]) -> Table:
    lines = [
        [
            target.title,
            f"{found.connections:,}",
            f"{found.before_bytes / _MB:.1f}",
            f"{found.after_bytes / _MB:.1f}",
            f"{found.connection_bytes / 1000:.1f}",
            f"{found.cpu_share:.1%}",
        ]
        for target in targets
        if (found := idle.get(target.name))
    ]
    head = ["idle connections", "number", "MB before", "MB with them", "KB each", "CPU, share of a core"]
    return Table("Memory (RSS) of the proxy with idle connections that have asked once", head, lines)


def _by_row(
    title: str, rows: Sequence[Row], targets: Sequence[Target], figure: Figure, *, is_cost: bool = False
) -> Table:
    lines = [[row.title, *(figure(row, target) for target in targets)] for row in rows]
    return Table(title, ["load", *(target.title for target in targets)], lines, is_cost)


def _has_cpu(results: Results, target: Target) -> bool:
    """Return True if the target has CPU times; the broker without a proxy has no CPU times."""
    return any(cell.cpu_s is not None for row in results.rows for cell in results.of(row, target))


def _comparisons(proxies: Sequence[Target]) -> list[tuple[Target, Target]]:
    """Return the pairs (target, reference) to compare, for every one of `proxies` that is no reference. If
    none is a reference, the first one serves as such.
    """
    others = [target for target in proxies if target.name in REFERENCES] or proxies[:1]
    return [(ours, theirs) for ours in proxies if ours not in others for theirs in others]


def _ratio_table(results: Results, compared: Sequence[tuple[Target, Target]]) -> Table:
    head = ["load", *(f"{ours.title} ÷ {theirs.title}" for ours, theirs in compared)]
    lines = [[row.title, *(_ratio(results, row, *pair) for pair in compared)] for row in results.rows]
    return Table(f"Ratios of CPU time per request within a round: {_MEDIAN}", head, lines)


def _ratio(results: Results, row: Row, ours: Target, theirs: Target) -> str:
    ours_us, theirs_us = _cpu_us(results, row, ours), _cpu_us(results, row, theirs)
    if not ours_us or not theirs_us:
        return NOTHING
    least, middle, most = ratios(ours_us, theirs_us)
    return f"{middle:.2f} ({least:.2f} to {most:.2f})"


def _cpu_us(results: Results, row: Row, target: Target) -> list[float]:
    return [cell.cpu_us for cell in results.of(row, target) if cell.cpu_us is not None]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return NOTHING
    least, middle, most = Spread.of(values)
    return f"{middle:.1f} ({least:.1f} to {most:.1f})"


def _per_mb(cells: Sequence[Measured], row: Row) -> str:
    used_us = [cell.cpu_us for cell in cells if cell.cpu_us is not None]
    if not used_us:
        return NOTHING
    request_mb = row.payload_bytes / _MB
    mb_per_s = Spread.of([cell.requests_per_s for cell in cells]).median * request_mb
    return f"{Spread.of(used_us).median / request_mb:,.0f}, {mb_per_s:,.0f} MB/s"


def _at_full_core(cells: Sequence[Measured]) -> str:
    rates = [cell.requests / cell.busiest_s for cell in cells if cell.busiest_s]
    return f"{Spread.of(rates).median:,.0f}" if rates else NOTHING


def _rate(cells: Sequence[Measured]) -> str:
    if not cells:
        return NOTHING
    per_s = Spread.of([cell.requests_per_s for cell in cells]).median
    p50_us = Spread.of([cell.p50_us for cell in cells]).median
    p99_us = Spread.of([cell.p99_us for cell in cells]).median
    return f"{per_s:,.0f}/s, {p50_us / 1000:.2f} / {p99_us / 1000:.2f}"


def _busiest(results: Results, row: Row) -> str:
    """Return the highest share of a core that the load generator used, with a proxy and without, such as
    "40% / 30%". The row's figures are only valid if the first share is below 80 %; above, the generator may
    be the bottleneck.
    """
    through, direct = (
        [
            cell.generator_busy
            for target in results.targets
            for cell in results.of(row, target)
            if (cell.cpu_s is not None) is proxied
        ]
        for proxied in (True, False)
    )
    return " / ".join(f"{max(shares):.0%}" if shares else NOTHING for shares in (through, direct))


def _memory(cells: Sequence[Measured]) -> str:
    rss = cells[-1].rss_bytes if cells else None
    return NOTHING if rss is None else f"{rss / _MB:.0f}"


def notes(outcome: Outcome) -> list[str]:
    """Return notes for readers of the tables: targets not measured, other load, a busy generator."""
    parts = {"": outcome.load, " with TLS": outcome.tls, " with SASL": outcome.sasl}.items()
    found: list[str] = []
    for _how, results in parts:
        titles = {target.name: target.title for target in results.targets}
        found += [f"{titles[name]} was not measured: {reason}" for name, reason in results.missing.items()]
    found = list(dict.fromkeys(found))
    if outcome.load_average > QUIET:
        found.append(
            f"The machine was not quiet: load average {outcome.load_average:.1f} before it began. "
            "Ratios count, other figures do not."
        )
    for how, results in parts:
        found += _busy(results, how)
    return found


def _busy(results: Results, how: str) -> Iterable[str]:
    """Yield a note on each row whose load generator was at its limit."""
    for row in results.rows:
        busy = [
            f"{target.title} {most:.0%}"
            for target in results.targets
            if (most := max((cell.generator_busy for cell in results.of(row, target)), default=0)) > BUSY
        ]
        if busy:
            yield f"{row.title}{how}: the load generator was busy ({', '.join(busy)} of a core)"
