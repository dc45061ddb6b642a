"""Prepare the parts of the report's page: figures, gauges, plots, the week, and rows of clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from weir.pipeline.report.model import (
    HOUR_MS,
    WEEK_MS,
    CandidateResult,
    Columns,
    EntityUsage,
    Findings,
    Proposal,
    Use,
)
from weir.pipeline.report.names import ReportEntity
from weir.pipeline.report.plot import Plot, plot
from weir.pipeline.report.units import OF_QUOTA, moment, text
from weir.quotas.table.quota_kind import BYTE_RATES, KINDS, RECORDED, QuotaKey

RUN: Final = {
    "ingest": "No records have been ingested: run weir pipeline ingest.",
    "rollup": "There are no roll-ups for this period and cluster: run weir pipeline rollup.",
    "recommend": "There is no recommendation: run weir pipeline recommend.",
    "replay": "There is no replay of this time: run weir pipeline replay.",
}
"""Text that the report shows if a job's output is missing, by job."""
WORDS: Final = {key.value: kind.limits for key, kind in RECORDED.items()}
"""Short word for the use that a quota limits."""
PLOTTED: Final = 8
"""Number of brokers with plots."""
_BYTE_RATES: Final = [key.value for key in BYTE_RATES]
_COMPARED: Final = 0.5
"""Least recorded time of the earlier week, as a share of the latest week's, for a comparison."""
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_SHADES: Final = 9


class Figure(NamedTuple):
    """One of the main numbers, with its change from the week before."""

    name: str
    value: str
    note: str
    change: str
    tone: str = ""


class Load(NamedTuple):
    """The highest load of a broker for one quota, in the quota's unit."""

    broker: int
    quota: str
    rate: float
    share: float
    """Part (0 to 1, or above) of the capacity, or of the busiest broker's load if there is no capacity."""


class Cell(NamedTuple):
    """A cell of the profile of the week."""

    shade: int
    """0 without records, else 1 (low) to 9 (the highest)."""
    text: str


class ClientRow(NamedTuple):
    """A row of the table of clients, and the client's page if `plots` is not None."""

    id: str
    client: EntityUsage
    quota_share: float | None
    """Highest window / limit, for the quota where this is highest; None without a limit."""
    plots: Sequence[Plot] | None
    proposals: Sequence[Proposal]


def missing(found: Findings) -> dict[str, str]:
    """Return the texts of `RUN` for the jobs whose output is missing."""
    parts = (found.ingested, found.use, found.proposals, found.candidates)  # in the order of `RUN`
    return {job: line for (job, line), part in zip(RUN.items(), parts, strict=True) if not part}


def exceeds_a_week(columns: Columns) -> bool:
    """Return True if the figures of the latest seven days leave out some of the columns."""
    return columns.count * columns.step_ms > WEEK_MS


def figures(use: Use, noun: str) -> list[Figure]:
    """Return the main numbers of the last seven days; `noun` is the word for one entity."""
    columns, (week, before) = use.columns, use.weeks
    now, then = columns.week(0), columns.week(1)
    compared = sum(columns.recorded_s[then]) >= _COMPARED * sum(columns.recorded_s[now])
    rates = columns.rates(use.bytes_)
    top = max(range(columns.count)[now], key=lambda index: rates[index])

    def changed(new: float, old: float) -> str:
        if not compared:
            return ""
        if not old:
            return "" if not new else "none the week before"
        change = round(100 * (new / old - 1))
        return "as the week before" if not change else f"{change:+,} % on the week before"

    rate, waits = columns.rate(use.bytes_, now), changed(week.throttled, before.throttled)
    faster = changed(rate, columns.rate(use.bytes_, then))
    busier = changed(rates[top], max(rates[then], default=0))
    more = changed(week.entities, before.entities)
    told = f"told to wait {text(week.throttle_s, 's')}"
    tone = "bad" if week.throttled > before.throttled else "good"
    return [
        Figure(
            "Traffic",
            text(rate, "B/s"),
            f"average of the {'latest 7 days' if exceeds_a_week(columns) else 'recorded time'}",
            faster,
        ),
        Figure(f"Busiest {columns.word}", text(rates[top], "B/s"), columns.when(top), busier),
        Figure(f"{noun.capitalize()}s", f"{week.entities:,}", "active", more),
        Figure("Throttled", f"{week.throttled:,}", told, waits, tone if waits else ""),
    ]


def gauges(found: Findings, use: Use) -> list[list[Load]]:
    """Return the highest loads of each broker."""
    quotas, capacity = found.wanted.limited or _BYTE_RATES, found.wanted.capacity
    highest = max((use.highest(broker, quota) for broker in use.brokers for quota in quotas), default=0.0)

    def load(broker: int, quota: str) -> Load:
        rate, full = use.highest(broker, quota), capacity.get(quota) or highest
        return Load(broker, quota, rate, rate / full if full else 0.0)

    return [[load(broker, quota) for quota in quotas] for broker in use.brokers]


def loads(found: Findings, use: Use) -> list[Plot]:
    """Return the plots of the loads of brokers over time, with their capacity."""
    return [
        plot(
            f"Broker {broker}, {WORDS[quota]}",
            use.columns,
            OF_QUOTA[quota],
            {"load": use.brokers[broker][quota]},
            {"capacity": found.wanted.capacity.get(quota)},
        )
        for broker in list(use.brokers)[:PLOTTED]
        for quota in found.wanted.limited or _BYTE_RATES
        if use.highest(broker, quota)
    ]


def week(use: Use) -> dict[str, list[Cell]]:
    """Return the average rate of each hour of the week, by day; empty if there are fewer than two days of
    hours.
    """
    columns = use.columns
    if columns.step_ms != HOUR_MS or columns.count < 48:
        return {}
    first = columns.from_ms // HOUR_MS + 3 * 24  # hour 0 of the epoch was on a Thursday
    every = [slice((hour - first) % 168, None, 168) for hour in range(168)]
    rates = [columns.rate(use.bytes_, each) if sum(columns.recorded_s[each]) else None for each in every]
    highest = max(rate or 0.0 for rate in rates)
    return {
        day: [_cell(f"{day} {hour:02}:00", rates[24 * number + hour], highest) for hour in range(24)]
        for number, day in enumerate(_DAYS)
    }


def _cell(hour: str, rate: float | None, highest: float) -> Cell:
    if rate is None:
        return Cell(0, f"{hour}: no records")
    return Cell(1 + round((_SHADES - 1) * rate / highest) if highest else 1, f"{hour}: {text(rate, 'B/s')}")


def rows(found: Findings, use: Use) -> list[ClientRow]:
    """Return the rows of the table of clients, those with the most bytes first."""
    proposals: dict[ReportEntity, list[Proposal]] = {}
    for proposal in found.proposals:
        proposals.setdefault(proposal.entity, []).append(proposal)
    paged = {client.entity for client in use.clients[: found.wanted.top]}
    result: list[ClientRow] = []
    for client in sorted(use.clients, key=lambda client: -client.total):
        own = proposals.get(client.entity, [])
        shares = [client.peaks[p.quota] / p.current for p in own if p.current and p.quota in client.peaks]
        plots = _plots(client, own, use.columns) if client.entity in paged else None
        result.append(ClientRow(f"client-{len(result) + 1}", client, max(shares, default=None), plots, own))
    return result


def _plots(client: EntityUsage, proposals: Sequence[Proposal], columns: Columns) -> list[Plot]:
    limits = {each.quota: {"quota": each.current, "proposed": each.proposed} for each in proposals}
    return [
        plot(
            quota if KINDS[QuotaKey(quota)].is_of_controller else f"{quota} at its busiest broker",
            columns,
            OF_QUOTA[quota],
            {"highest window": client.highs[quota], "average": client.means[quota]},
            limits.get(quota, {}),
        )
        for quota in client.peaks
    ]


def replayed(candidates: Sequence[CandidateResult]) -> str:
    """Return the time that the replay covers as text, in UTC."""
    ends = min(each.from_ms for each in candidates), max(each.to_ms for each in candidates)
    return " to ".join(moment(end, "%a %-d %b %Y %H:%M") for end in ends)


def throttled(candidates: Sequence[CandidateResult]) -> list[str]:
    """Return the quotas with throttled time under any candidate quota file."""
    every = (quota for each in candidates for quota, time in each.throttled_s.items() if time.upper != 0)
    return list(dict.fromkeys(every))
