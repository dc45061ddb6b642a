"""Make the report's charts: each has a title with its main finding, a figure, and a table of the same
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weir.pipeline.report.figures import Figure, Series, bars, heat, points
from weir.pipeline.report.html import Html, join
from weir.pipeline.report.model import (
    RATE_QUANTITIES,
    Broker,
    Heat,
    Recommendation,
    Recommended,
    Replay,
    Spread,
    Talkers,
    Throttled,
)
from weir.pipeline.report.names import Label, label, named, ours
from weir.pipeline.report.units import BYTES, COUNT, SECONDS, moment, number, plural, share

Text = str | Html


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text; each row has one cell per heading, and its first cell names the row."""

    headings: tuple[Text, ...]
    rows: tuple[tuple[Text, ...], ...]


@dataclass(frozen=True, slots=True)
class View:
    """One of a chart's alternative figures, such as one measure, with its table; the reader chooses it in a
    selector.
    """

    name: str
    """Name of the view in the chart's selector."""
    title: Text
    figure: Figure
    table: Table


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the page with its views, such as one per quota; the page shows one view at a time."""

    name: str
    """Name of the chart, unique in the page; letters and hyphens."""
    views: tuple[View, ...]
    note: Text = ""


def line(*cells: Text) -> tuple[Text, ...]:
    """Return the arguments as a tuple, the cells of one row of a table."""
    return cells


def others(count: int) -> Label:
    """Return the label of a chart's last row, which sums up the `count` entities that are not shown."""
    return ours(f"all others ({count:,})")


def sentence(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def heat_chart(name: str, heats: Sequence[Heat], note: Text = "") -> Chart:
    """Return the chart of usage by entity and time, with a view per heat map."""
    return Chart(name, tuple(_heat_view(each) for each in heats), note)


def _heat_view(found: Heat) -> View:
    labels = [label(entity) for entity, _ in found.rows]
    rows = [values for _, values in found.rows]
    if found.rest_count:
        labels.append(others(found.rest_count))
        rows.append(found.rest)
    sums = {start: sum(row.get(start, 0) for row in rows) for start in found.columns.starts}
    peak = max(sums, key=lambda start: sums[start])
    title = f"{sentence(found.title)}: most in the {found.columns.word} of {_when(found, peak)}, "
    headings = ("", *(_when(found, start) for start in found.columns.starts))
    cells = tuple(
        line(each.page(), *(found.quantity.text(row[s]) if row.get(s) else "" for s in found.columns.starts))
        for each, row in zip(labels, rows, strict=True)
    )
    figure = heat(labels, rows, found.columns, found.quantity)
    return View(
        found.title, title + f"{found.quantity.text(sums[peak])} together", figure, Table(headings, cells)
    )


def _when(found: Heat, start_ms: int) -> str:
    return moment(start_ms, "%Y-%m-%d %H:%M" if found.columns.word == "hour" else "%Y-%m-%d")


def talkers_chart(found: Sequence[Talkers]) -> Chart:
    """Return the chart of the entities with the highest usage, with a view per measure."""
    return Chart("talkers", tuple(_talkers_view(each) for each in found))


def _talkers_view(found: Talkers) -> View:
    quantity, rate = found.measure.quantity, RATE_QUANTITIES[found.measure.rate]
    labels = [label(row.entity) for row in found.rows]
    first = found.rows[0]
    title = join(
        f"Most {found.measure.title}: ",
        labels[0].page(),
        f", {quantity.text(first.total)} ({share(first.total, found.total)} of all)",
    )
    rows: list[tuple[Text, ...]] = [
        line(who.page(), quantity.text(row.total), share(row.total, found.total), rate.text(row.peak))
        for who, row in zip(labels, found.rows, strict=True)
    ]
    if found.rest_count:
        rest = (quantity.text(found.rest), share(found.rest, found.total), "-")
        rows.append((others(found.rest_count).page(), *rest))
    series = Series(found.measure.title, [row.total for row in found.rows])
    headings = ("", sentence(found.measure.title), "Share of all", "Highest rate in a window")
    figure = bars(labels, [series], quantity, stacked=False)
    return View(found.measure.title, title, figure, Table(headings, tuple(rows)))


def throttled_chart(found: Throttled) -> Chart:
    """Return the chart of the throttle times by entity and quota."""
    quotas = [quota for quota in found.rest if found.total(quota)]
    labels = [label(row.entity) for row in found.rows]
    values = [row.by_quota for row in found.rows]
    first, total = sum(values[0].values()), sum(map(found.total, quotas))
    title = join(
        "Throttled most: ",
        labels[0].page(),
        f", told to wait {SECONDS.text(first)} ({share(first, total)} of all)",
    )
    if found.rest_count:
        labels.append(others(found.rest_count))
        values.append(found.rest)
    series = [Series(quota, [row[quota] for row in values]) for quota in quotas]
    rows = tuple(
        line(who.page(), *(SECONDS.text(row[quota]) for quota in quotas), SECONDS.text(sum(row.values())))
        for who, row in zip(labels, values, strict=True)
    )
    figure = bars(labels, series, SECONDS, stacked=True)
    return Chart("throttled", (View("", title, figure, Table(("", *quotas, "All"), rows)),))


def brokers_chart(found: Spread) -> Chart:
    """Return the chart of the bytes by broker."""
    brokers = [*found.brokers, *([found.rest] if found.rest else [])]
    labels = [named(f"broker {each.broker}") for each in found.brokers]
    if found.rest:
        labels.append(others(found.rest_count))
    series = [
        Series("from clients", [each.bytes_in for each in brokers]),
        Series("to clients", [each.bytes_out for each in brokers]),
    ]
    rows = tuple(line(who.page(), *_broker_cells(each)) for who, each in zip(labels, brokers, strict=True))
    headings = ("", "From clients", "To clients", "Requests", "Request time", "Records")
    figure = bars(labels, series, BYTES, stacked=True)
    return Chart("brokers", (View("", _brokers_title(found), figure, Table(headings, rows)),))


def _broker_cells(broker: Broker) -> tuple[str, ...]:
    return (
        BYTES.text(broker.bytes_in),
        BYTES.text(broker.bytes_out),
        COUNT.text(broker.requests),
        SECONDS.text(broker.request_time_s),
        COUNT.text(broker.records),
    )


def _brokers_title(found: Spread) -> str:
    count = len(found.brokers) + found.rest_count
    if count == 1:
        return f"Everything went through broker {found.brokers[0].broker}"
    everything = [*found.brokers, *([found.rest] if found.rest else [])]
    mean = sum(each.bytes_in + each.bytes_out for each in everything) / count
    busiest = found.brokers[0]
    times = (busiest.bytes_in + busiest.bytes_out) / mean if mean else 1
    return f"Broker {busiest.broker} carried {number(times)} times the mean of {plural(count, 'broker')}"


def uneven_chart(found: Spread) -> Chart:
    """Return the chart of the entities whose use of brokers is most uneven."""
    labels = [label(row.entity) for row in found.uneven]
    first = found.uneven[0]
    title = join(
        "Most unevenly spread: ",
        labels[0].page(),
        f", {BYTES.text(first.excess_bytes)} beyond the mean of its brokers at the busiest of them",
    )
    rows = tuple(
        line(
            who.page(),
            BYTES.text(row.excess_bytes),
            number(row.skew),
            str(row.busiest_broker),
            str(row.brokers),
        )
        for who, row in zip(labels, found.uneven, strict=True)
    )
    headings = ("", "Beyond the mean", "Skew", "Busiest broker", "Brokers")
    series = Series("beyond the mean", [row.excess_bytes for row in found.uneven])
    figure = bars(labels, [series], BYTES, stacked=False)
    return Chart("uneven", (View("", title, figure, Table(headings, rows)),))


def recommendation_chart(found: Sequence[Recommendation], note: Text = "") -> Chart:
    """Return the chart of used, current and proposed rates, with a view per quota."""
    return Chart("recommendation", tuple(_recommendation_view(each) for each in found), note)


def _recommendation_view(found: Recommendation) -> View:
    quantity = RATE_QUANTITIES[found.quota]
    labels = [label(row.entity) for row in found.rows]
    title = (
        f"{found.quota}: {found.raised:,} raised, {found.lowered:,} lowered, {found.new:,} new, "
        f"of {found.count:,} proposed; shown are the {len(found.rows):,} that used most"
    )
    series = [
        Series("used", [row.used for row in found.rows]),
        Series("current limit", [row.current for row in found.rows]),
        Series("proposed limit", [row.proposed for row in found.rows]),
    ]
    rows: list[tuple[Text, ...]] = [
        line(who.page(), *_recommended_cells(row, found.quota))
        for who, row in zip(labels, found.rows, strict=True)
    ]
    if rest := found.count - len(found.rows):
        rows.append((others(rest).page(), "", "", "", "", "", ""))
    headings = ("", "Used", "Current", "Proposed", "Entry", "Flags", "Reason")
    return View(found.quota, title, points(labels, series, quantity), Table(headings, tuple(rows)))


def _recommended_cells(row: Recommended, quota: str) -> tuple[Text, ...]:
    quantity = RATE_QUANTITIES[quota]
    return (
        quantity.text(row.used),
        quantity.text(row.current),
        quantity.text(row.proposed),
        "the default" if row.in_default else "its own",
        named(", ".join(row.flags)).page() if row.flags else "",
        named(row.reason).page() if row.reason else "",
    )


def replay_entities_chart(found: Replay) -> Chart:
    """Return the chart of the throttled time by entity and candidate."""
    labels = [label(row.entity) for row in found.rows]
    values = [row.throttled_s for row in found.rows]
    if found.rest_count:
        labels.append(others(found.rest_count))
        values.append(found.rest)
    names = [named(candidate.name) for candidate in found.candidates]
    series = [
        Series(candidate.name, [row[index] for row in values])
        for index, candidate in enumerate(found.candidates)
    ]
    rows = tuple(
        line(who.page(), *(SECONDS.text(seconds) for seconds in row))
        for who, row in zip(labels, values, strict=True)
    )
    figure = bars(labels, series, SECONDS, stacked=False)
    headings = line("", *(name.page() for name in names))
    title = "Throttled time of each client under each candidate"
    return Chart("replay-entities", (View("", title, figure, Table(headings, rows)),))


def replay_quotas_chart(found: Replay) -> Chart:
    """Return the chart of the throttled time by candidate and quota."""
    quotas = [
        quota
        for quota in found.candidates[0].throttled_s
        if any(candidate.throttled_s[quota] for candidate in found.candidates)
    ]
    labels = [named(candidate.name) for candidate in found.candidates]
    series = [
        Series(quota, [candidate.throttled_s[quota] for candidate in found.candidates]) for quota in quotas
    ]
    rows = tuple(
        line(
            who.page(),
            *(SECONDS.text(candidate.throttled_s[quota]) for quota in quotas),
            SECONDS.text(candidate.total_s),
            COUNT.text(candidate.violations),
            COUNT.text(candidate.given_up),
        )
        for who, candidate in zip(labels, found.candidates, strict=True)
    )
    headings = ("", *quotas, "All", "Violations", "Requests given up")
    figure = bars(labels, series, SECONDS, stacked=True)
    return Chart("replay-quotas", (View("", _replay_title(found), figure, Table(headings, rows)),))


def _replay_title(found: Replay) -> Html:
    least = min(found.candidates, key=lambda candidate: candidate.total_s)
    most = max(found.candidates, key=lambda candidate: candidate.total_s)
    if len(found.candidates) == 1 or least.total_s == most.total_s:
        return join("Each candidate throttles for ", SECONDS.text(most.total_s))
    return join(
        named(least.name).page(),
        f" throttles least, {SECONDS.text(least.total_s)}; ",
        named(most.name).page(),
        f" most, {SECONDS.text(most.total_s)}",
    )
