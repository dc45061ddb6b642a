"""Prepare the report's page from the findings: figures, gauges, plots and pages of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

from weir.pipeline.report.actions import Action, actions
from weir.pipeline.report.model import (
    HOUR_MS,
    QUANTITIES,
    Client,
    Columns,
    Findings,
    Proposal,
    Use,
)
from weir.pipeline.report.names import SHORT, Entity, label, named
from weir.pipeline.report.plot import SPARKS, Plot, plot, spark, thin
from weir.pipeline.report.summary import (
    BYTE_RATES,
    NOUNS,
    WORDS,
    Figure,
    Gauge,
    figures,
    gauges,
    highest_load,
    limited,
)
from weir.pipeline.report.units import BYTES_PER_S

RUN: Final = {
    "ingest": "No records have been ingested: run weir pipeline ingest.",
    "rollup": "There are no roll-ups of this time and cluster: run weir pipeline rollup.",
    "recommend": "There is no recommendation: run weir pipeline recommend.",
    "replay": "There is no replay of this time: run weir pipeline replay.",
}
"""Text that the report shows if a job's output is missing, by job."""
PLOTTED: Final = 8
"""Number of brokers with plots."""
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_SHADES: Final = 9


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table of clients, and the client's page if `plots` is not None."""

    id: str
    client: Client
    name: Markup
    long_name: Markup
    spark: str
    share: float
    quota_share: float | None
    """Highest window / limit, for the quota where this is highest; None without a limit."""
    plots: tuple[Plot, ...] | None
    proposals: tuple[Proposal, ...]

    @property
    def waited_s(self) -> float:
        """Sum (s) of the throttle times that the client was told."""
        return sum(self.client.throttle_s.values())


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the profile of the week."""

    shade: int
    """0 without records, else 1 (low) to 9 (the highest)."""
    text: str


@dataclass(frozen=True, slots=True)
class UseView:
    """The parts of the page about usage."""

    noun: str
    """Word for one entity."""
    figures: tuple[Figure, ...]
    gauges: tuple[Gauge, ...]
    has_capacity: bool
    loads: tuple[Plot, ...]
    week: tuple[tuple[str, tuple[Cell, ...]], ...]
    """For each day of the week its name and hours; empty for a short time."""
    rows: tuple[Row, ...]
    rows_left: int
    points: int
    """Number of steps of a sparkline."""


@dataclass(frozen=True, slots=True)
class View:
    """All content of the page."""

    cluster: Markup
    made: str
    version: str
    use: UseView | None
    actions: tuple[Action, ...]
    found: Findings
    quotas: tuple[str, ...]
    """Quotas with replayed throttled time."""
    missing: Mapping[str, str]
    """Texts for missing tables, by job."""


def view(found: Findings, *, made: datetime, version: str) -> View:
    """Return the content of the page, which shows the time `made` and Weir's `version`."""
    throttled = (quota for each in found.candidates for quota, s in each.throttled_s.items() if s.upper != 0)
    return View(
        cluster=named(found.cluster).page(),
        made=made.astimezone(UTC).strftime("%Y-%m-%d %H:%M"),
        version=version,
        use=_use(found, found.use) if found.use else None,
        actions=tuple(actions(found)),
        found=found,
        quotas=tuple(dict.fromkeys(throttled)),
        missing={job: RUN[job] for job in missing(found)},
    )


def _use(found: Findings, use: Use) -> UseView:
    brokers, rows = gauges(found, use), _rows(found, use)
    return UseView(
        noun=NOUNS[found.level],
        figures=figures(use, NOUNS[found.level]),
        gauges=brokers,
        has_capacity=bool(limited(found)),
        loads=_loads(found, use),
        week=_week(use),
        rows=rows,
        rows_left=use.count - len(rows),
        points=len(thin(use.bytes_, SPARKS)),
    )


def missing(found: Findings) -> list[str]:
    """Return the names of the jobs whose output is missing."""
    there = {
        "ingest": bool(found.ingested),
        "rollup": found.use is not None,
        "recommend": bool(found.proposals),
        "replay": bool(found.candidates),
    }
    return [job for job, is_there in there.items() if not is_there]


def _loads(found: Findings, use: Use) -> tuple[Plot, ...]:
    quotas = limited(found) or list(BYTE_RATES)
    return tuple(
        plot(
            f"Broker {broker.broker}, {WORDS[quota]}",
            use.columns,
            QUANTITIES[quota],
            {"load": broker.loads[quota]},
            {"capacity": found.capacity[quota]} if quota in found.capacity else {},
        )
        for broker in use.brokers[:PLOTTED]
        for quota in quotas
        if highest_load(broker, quota)
    )


def _week(use: Use) -> tuple[tuple[str, tuple[Cell, ...]], ...]:
    """Return the average rate of each hour of the week; empty if there are fewer than two days of hours."""
    columns = use.columns
    if columns.step_ms != HOUR_MS or columns.count < 48:
        return ()
    sums = {(day, hour): [0.0, 0.0] for day in range(7) for hour in range(24)}
    for index, (bytes_, seconds) in enumerate(zip(use.bytes_, columns.recorded_s, strict=True)):
        hour = columns.start(index) // HOUR_MS
        cell = sums[(hour // 24 + 3) % 7, hour % 24]  # day 0 of the epoch was a Thursday
        cell[0] += bytes_
        cell[1] += seconds
    rates = {key: bytes_ / seconds for key, (bytes_, seconds) in sums.items() if seconds}
    highest = max(rates.values(), default=0.0)
    return tuple(
        (name, tuple(_cell(name, hour, rates.get((day, hour)), highest) for hour in range(24)))
        for day, name in enumerate(_DAYS)
    )


def _cell(day: str, hour: int, rate: float | None, highest: float) -> Cell:
    text = f"{day} {hour:02}:00"
    if rate is None:
        return Cell(0, f"{text}: no records")
    return Cell(
        1 + round((_SHADES - 1) * rate / highest) if highest else 1, f"{text}: {BYTES_PER_S.text(rate)}"
    )


def _rows(found: Findings, use: Use) -> tuple[Row, ...]:
    by_entity: dict[Entity, list[Proposal]] = {}
    for proposal in found.proposals:
        by_entity.setdefault(proposal.entity, []).append(proposal)
    all_bytes = sum(use.bytes_)
    paged = {client.entity for client in use.clients[: found.top]}
    return tuple(
        _row(
            f"client-{index + 1}",
            client,
            by_entity.get(client.entity, []),
            use.columns,
            client.total / all_bytes if all_bytes else 0.0,
            paged=client.entity in paged,
        )
        for index, client in enumerate(sorted(use.clients, key=lambda client: -client.total))
    )


def _row(
    id_: str, client: Client, proposals: Sequence[Proposal], columns: Columns, part: float, *, paged: bool
) -> Row:
    limits = {each.quota: each.current for each in proposals if each.current}
    shares = [client.peaks[quota] / limit for quota, limit in limits.items() if quota in client.peaks]
    return Row(
        id_,
        client,
        label(client.entity).page(SHORT),
        label(client.entity).page(),
        spark(client.bytes_),
        part,
        max(shares, default=None),
        _plots(client, proposals, columns) if paged else None,
        tuple(proposals),
    )


def _plots(client: Client, proposals: Sequence[Proposal], columns: Columns) -> tuple[Plot, ...]:
    lines: dict[str, dict[str, float]] = {quota: {} for quota in client.peaks}
    for each in proposals:
        if each.quota in lines:
            values = {"quota": each.current, "proposed": each.proposed}
            lines[each.quota] = {name: value for name, value in values.items() if value is not None}
    where = "at its busiest broker"
    return tuple(
        plot(
            f"{quota} {where}" if quota != "controller_mutation_rate" else quota,
            columns,
            QUANTITIES[quota],
            {"highest window": client.highs[quota], "average": client.means[quota]},
            lines[quota],
        )
        for quota in client.peaks
    )
