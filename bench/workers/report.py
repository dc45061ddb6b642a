"""Make tables of what was measured with workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.report import Table
from bench.stats import Spread
from bench.workers.churn import Churn
from bench.workers.crowd import Crowd
from bench.workers.scaling import LOADS, Shared

_SCALING: Final = (
    "load",
    "CPU µs per request, one worker",
    "two workers",
    "ratio",
    "busier worker's part",
    "requests/s per full core, one worker",
    "two workers",
    "scaling",
    "measured rate, ratio",
    "generators' share of a core",
)


def scaling(found: Mapping[tuple[str, int], Sequence[Shared]]) -> Table:
    """Return a line per load: cost, rate at which the busiest process is at its limit, and measured rate."""
    return Table(
        "One worker and two workers in front of two stub brokers",
        _SCALING,
        [
            [row.title, *_line(found[row.name, 1], found[row.name, 2])]
            for row in LOADS
            if (row.name, 1) in found
        ],
    )


def _line(ones: Sequence[Shared], twos: Sequence[Shared]) -> list[str]:
    rounds = list(zip(ones, twos, strict=True))
    return [
        f"{Spread.of([one.cpu_us for one in ones]).median:.1f}",
        f"{Spread.of([two.cpu_us for two in twos]).median:.1f}",
        _spread([two.cpu_us / one.cpu_us for one, two in rounds]),
        f"{Spread.of([two.busiest for two in twos]).median:.0%}",
        f"{Spread.of([one.core_rate for one in ones]).median:,.0f}",
        f"{Spread.of([two.core_rate for two in twos]).median:,.0f}",
        _spread([two.core_rate / one.core_rate for one, two in rounds]),
        _spread([two.requests_per_s / one.requests_per_s for one, two in rounds]),
        f"{max(each.generator_busy for each in (*ones, *twos)):.0%}",
    ]


def _spread(values: Sequence[float]) -> str:
    spread = Spread.of(values)
    return f"{spread.median:.2f} ({spread.least:.2f} to {spread.most:.2f})"


def crowd(found: Crowd) -> Table:
    """Return one line about many connections."""
    return Table(
        "Many connections over two workers",
        ["connections", "opened in s", "memory KiB each", "CPU while idle", "all asked again in s"],
        [
            [
                f"{found.connections:,}",
                f"{found.opened_s:.1f}",
                f"{found.connection_bytes / 1024:.1f}",
                f"{found.idle_share:.1%}",
                f"{found.asked_s:.1f}",
            ]
        ],
    )


def churn(found: Mapping[str, Churn]) -> Table:
    """Return a line per number of workers about new connections."""
    head = ["Weir", "answered per s", "failed", "median ms", "p99 ms", "longest ms", "supervisor", "workers"]
    return Table(
        "New connections, one request each", head, [[name, *_churned(one)] for name, one in found.items()]
    )


def _churned(one: Churn) -> list[str]:
    median_ms, p99_ms, longest_ms = one.latency_ms
    supervisor, *workers = one.shares
    return [
        f"{one.per_s:,.0f}",
        f"{len(one.failures):,}",
        f"{median_ms:.1f}",
        f"{p99_ms:.1f}",
        f"{longest_ms:.1f}",
        f"{supervisor:.0%}",
        ", ".join(f"{share:.0%}" for share in workers),
    ]
