"""Make the sections of the report; a section without data names the job to run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from weir.pipeline.report.charts import (
    Chart,
    Table,
    Text,
    brokers_chart,
    heat_chart,
    line,
    recommendation_chart,
    replay_entities_chart,
    replay_quotas_chart,
    talkers_chart,
    throttled_chart,
    uneven_chart,
)
from weir.pipeline.report.html import element, join
from weir.pipeline.report.model import Columns, Findings, Ingested, Overview
from weir.pipeline.report.names import WIDE, label, named
from weir.pipeline.report.page import Page, Section, Tile
from weir.pipeline.report.units import BYTES, COUNT, SECONDS, moment, plural, share

RUN: Final = {
    "ingest": "No records have been ingested: run weir pipeline ingest.",
    "rollup": "There are no roll-ups of this time: run weir pipeline rollup.",
    "recommend": "There is no recommendation: run weir pipeline recommend.",
    "replay": "There is no replay of this time: run weir pipeline replay.",
}
"""Text that the report shows in place of a section if a job's output is missing, by job."""
LEVELS: Final = {
    "user-client-id": "pair of user and client-id",
    "user": "user",
    "client-id": "client-id",
}
"""Words of the report for one entity, by level: such as `pair of user and client-id`."""
_LOGARITHMIC: Final = "Colours are logarithmic: each tick is ten times the one before. Empty cells: no use."
_WAITS: Final = (
    "Times that clients were told to wait, added up over connections and brokers: "
    "they can be more than the time that has passed."
)
_SIDE_BY_SIDE: Final = (
    "Time during which any client waited, added up over brokers and quotas. Recorded times are grouped by "
    "the budgets of the first candidate; candidates with other shared budgets have rows of their own."
)


def page(found: Findings, *, made: datetime, version: str) -> Page:
    """Return the content of the whole page, which shows the time `made` and Weir's `version`."""
    sections = (
        *(
            (_use(found), _talkers(found), _spread(found), _throttled(found))
            if found.overview
            else (_no_use(),)
        ),
        _recommendation(found),
        _replay(found),
        _ingested(found),
    )
    when = made.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    foot = f"Made by Weir {version} at {when} UTC. All times are UTC; 1 MB is 1,000,000 bytes."
    return Page("Use of Kafka, as seen by Weir", _lead(found), _tiles(found), sections, foot)


def missing(found: Findings) -> list[str]:
    """Return the names of the jobs whose output is missing."""
    there = {
        "ingest": bool(found.ingested),
        "rollup": found.overview is not None,
        "recommend": bool(found.recommendations),
        "replay": found.replay is not None,
    }
    return [job for job, is_there in there.items() if not is_there]


def _lead(found: Findings) -> str:
    if found.overview is None:
        return RUN["rollup"] if found.ingested else RUN["ingest"]
    span = f"{moment(found.overview.span.from_ms)} to {moment(found.overview.span.to_ms)} UTC"
    parts = [COUNT.text(found.overview.entities) + " " + _entities(found.overview.entities, found.level)]
    if found.spread:
        brokers = [*found.spread.brokers, *([found.spread.rest] if found.spread.rest else [])]
        count = len(found.spread.brokers) + found.spread.rest_count
        parts += [plural(count, "broker"), plural(sum(each.records for each in brokers), "usage record")]
    return f"{span}: {', '.join(parts)}."


def _entities(count: int, level: str) -> str:
    one = LEVELS[level]
    return one if count == 1 else one.replace("pair ", "pairs ") if level == "user-client-id" else f"{one}s"


def _tiles(found: Findings) -> tuple[Tile, ...]:
    if found.overview is None:
        return ()
    all_of = found.overview
    busiest = label(all_of.busiest).page(2 * WIDE)
    bytes_ = all_of.bytes_in + all_of.bytes_out
    throttled = f"{all_of.throttled_entities:,} of {all_of.entities:,}"
    return (
        Tile("From clients", BYTES.text(all_of.bytes_in), _rate(all_of, all_of.bytes_in)),
        Tile("To clients", BYTES.text(all_of.bytes_out), _rate(all_of, all_of.bytes_out)),
        Tile("Requests", COUNT.text(all_of.requests)),
        Tile("Busiest", busiest, f"{share(all_of.busiest_bytes, bytes_)} of all bytes", is_name=True),
        Tile("Throttle time", SECONDS.text(all_of.throttle_s), "as clients were told, added up"),
        Tile("Ever throttled", share(all_of.throttled_entities, all_of.entities), throttled),
    )


def _rate(all_of: Overview, count: int) -> str:
    seconds = (all_of.span.to_ms - all_of.span.from_ms) / 1000
    return f"{BYTES.text(count / seconds)}/s on average" if seconds else ""


def _no_use() -> Section:
    return Section("use", "Use by entity and time", (RUN["rollup"],))


def _use(found: Findings) -> Section:
    if not found.heats:
        return Section("use", "Use by entity and time", ("There was no use in this time.",))
    note = f"{_step(found.heats[0].columns)} {_LOGARITHMIC}"
    return Section("use", "Use by entity and time", (heat_chart("use-heat", found.heats, note),))


def _step(columns: Columns) -> str:
    if columns.word == "hour":
        return "A column is an hour."
    return (
        f"A column is {'a day' if columns.word == 'day' else columns.word}: the time is too long for hours."
    )


def _talkers(found: Findings) -> Section:
    part: Chart | str = talkers_chart(found.talkers) if found.talkers else "There was no use in this time."
    return Section("talkers", "Who used most", (part,))


def _spread(found: Findings) -> Section:
    if found.spread is None:
        return Section("brokers", "How use is spread over brokers", (RUN["ingest"],))
    parts: list[Chart | Table | Text] = [brokers_chart(found.spread)]
    if found.spread.uneven:
        parts.append(uneven_chart(found.spread))
    return Section("brokers", "How use is spread over brokers", tuple(parts))


def _throttled(found: Findings) -> Section:
    title = "Who was throttled"
    if found.throttled is None:
        return Section("throttled", title, ("No client was throttled in this time.",))
    heats = found.throttled.heats
    charts = (throttled_chart(found.throttled), heat_chart("throttled-heat", heats, _step(heats[0].columns)))
    return Section("throttled", title, (_WAITS, *charts))


def _recommendation(found: Findings) -> Section:
    title = "Recommended quotas beside current ones"
    if not found.recommendations:
        return Section("recommendation", title, (RUN["recommend"],))
    flags: dict[str, int] = {}
    for each in found.recommendations:
        for flag, count in each.flags:
            flags[flag] = flags.get(flag, 0) + count
    said = [join(named(flag).page(), f": {count:,}. ") for flag, count in flags.items()]
    parts: list[Chart | Table | Text] = [element("p", "Flags: ", *said)] if said else []
    note = "The axis is logarithmic; zero, or no limit, has no mark. Reasons are in the table."
    parts.append(recommendation_chart(found.recommendations, note))
    return Section("recommendation", title, tuple(parts))


def _replay(found: Findings) -> Section:
    title = "What other quotas would have done"
    if found.replay is None:
        return Section("replay", title, (RUN["replay"],))
    note = _SIDE_BY_SIDE
    if found.replay.left_out:
        note += f" {plural(found.replay.left_out, 'more candidate')} not shown."
    charts: list[Chart] = [replay_quotas_chart(found.replay)]
    if found.replay.rows:
        charts.append(replay_entities_chart(found.replay))
    return Section("replay", title, (note, *charts))


def _ingested(found: Findings) -> Section:
    title = "How good the records are"
    if not found.ingested:
        return Section("records", title, (RUN["ingest"],))
    parts: list[Chart | Table | Text] = [_counts(found)]
    for each in found.ingested:
        parts += _troubles(each)
    return Section("records", title, tuple(parts))


def _counts(found: Findings) -> Table:
    headings = line("", "Batches", "Read", "Good", "Late", "Malformed")
    rows = tuple(
        line(
            each.kind,
            f"{each.batches:,}",
            f"{each.read:,}",
            f"{each.good:,}",
            f"{each.late:,} ({share(each.late, each.read)})",
            f"{each.malformed:,} ({share(each.malformed, each.read)})",
        )
        for each in found.ingested
    )
    return Table(headings, rows)


def _troubles(found: Ingested) -> list[Chart | Table | Text]:
    parts: list[Chart | Table | Text] = []
    if found.bad_batches:
        rows = tuple(line(str(batch), f"{late:,}", f"{bad:,}") for batch, late, bad in found.bad_batches)
        parts.append(element("h3", f"The latest batches of {found.kind} with late or malformed records"))
        parts.append(Table(line("Batch", "Late", "Malformed"), rows))
    if found.reasons:
        reasons = tuple(line(named(reason).page(), f"{count:,}") for reason, count in found.reasons)
        parts.append(element("h3", f"Why lines were not valid {found.kind} records"))
        parts.append(Table(line("Reason", "Lines"), reasons))
    return parts
