"""Format comparisons of estimated and measured request time as tables, notes and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.report import Table
from bench.request_time.comparing import Compared
from bench.request_time.judge import Figure, Kind, Verdict, by_client, verdicts

HEAD: Final = ("client", "requests/s", "true µs/request", "true %", "estimate %", "estimate / truth")
TITLES: Final = {"direct": "straight at the broker, the model's estimate", "weir": "through Weir, as charged"}


def figures(compared: Compared, way: str) -> list[Figure]:
    """Return the figures of each client, for one way of running the workloads."""
    found = (by_client(pairs) for pairs in compared.pairs[way].values())
    return [figure for figure in found if figure is not None]


def tables(compared: Compared) -> list[Table]:
    """Return one table per way of running the workloads."""
    return [
        Table(
            f"Kafka {compared.version}, {TITLES[way]}", HEAD, [_line(each) for each in figures(compared, way)]
        )
        for way in compared.pairs
    ]


def _line(figure: Figure) -> list[str]:
    return [
        figure.name,
        f"{figure.requests / figure.seconds:,.0f}",
        f"{figure.truth_us / figure.requests:,.1f}",
        f"{figure.truth_percent:.2f}",
        f"{figure.percent:.2f}",
        f"{figure.ratio:.2f}",
    ]


def notes(compared: Compared, kinds: Mapping[str, Kind]) -> list[str]:
    """Return notes for readers: each target with its verdict, then the failures."""
    told = []
    for way in compared.pairs:
        told += [_note(compared.version, way, verdict) for verdict in verdicts(figures(compared, way), kinds)]
    return told + compared.problems


def _note(version: str, way: str, verdict: Verdict) -> str:
    reached = "reached" if verdict.reached else "NOT REACHED"
    return f"{version}, {way}: {verdict.target}: {reached} ({verdict.found})"
