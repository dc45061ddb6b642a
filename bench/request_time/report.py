"""Format comparisons of estimated and measured request time as tables, notes and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.report import Table
from bench.request_time.comparing import Compared
from bench.request_time.judge import Figure, Kind, Verdict, by_api, by_client, verdicts
from weir.quotas.costs.request_costs import ApiCost, CostTable

HEAD: Final = ("client", "requests/s", "true µs/request", "true %", "estimate %", "estimate / truth")
TITLES: Final = {"direct": "straight at the broker, the model's estimate", "weir": "through Weir, as charged"}


def figures(compared: Compared, way: str) -> list[Figure]:
    """Return the figures of each client, for one way of running the workloads."""
    found = (by_client(pairs) for pairs in compared.pairs[way].values())
    return [figure for figure in found if figure is not None]


def tables(compared: Compared, *, apis: bool) -> list[Table]:
    """Return one table per way of running the workloads. With `apis`, each client's row is followed by rows
    of its APIs.
    """
    return [
        Table(f"Kafka {compared.version}, {TITLES[way]}", HEAD, _lines(compared, way, apis=apis))
        for way in compared.pairs
        if compared.pairs[way]
    ]


def _lines(compared: Compared, way: str, *, apis: bool) -> list[list[str]]:
    lines = []
    for pairs in compared.pairs[way].values():
        whole, parts = by_client(pairs), by_api(pairs)
        if whole is not None:
            lines.append(_line(whole, whole.name))
        if apis and len(parts) > 1:
            lines += [_line(part, f"… {part.name}") for part in parts]
    return lines


def _line(figure: Figure, name: str) -> list[str]:
    return [
        name,
        f"{figure.requests / figure.seconds:,.0f}",
        f"{figure.truth_us / figure.requests:,.1f}",
        f"{figure.truth_percent:.2f}",
        f"{figure.percent:.2f}",
        f"{figure.ratio:.2f}",
    ]


def overview(all_compared: Sequence[Compared]) -> Table:
    """Return a table of the ratios estimate / measured time of every client, with a column for each broker
    and way.
    """
    columns = [(compared, way) for compared in all_compared for way in compared.pairs if compared.pairs[way]]
    ratios = [{figure.name: figure.ratio for figure in figures(*column)} for column in columns]
    names = list(dict.fromkeys(name for found in ratios for name in found))
    head = ["client", *(f"{compared.version}, {way}" for compared, way in columns)]
    lines = [[name, *(f"{found[name]:.2f}" if name in found else "-" for found in ratios)] for name in names]
    return Table("Estimate / truth", head, lines)


def ranges(all_compared: Sequence[Compared]) -> Table:
    """Return a table of the lowest and the highest ratio of every client over all brokers, with a column for
    each way.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for compared in all_compared:
        for way in compared.pairs:
            for figure in figures(compared, way):
                found.setdefault(figure.name, {}).setdefault(way, []).append(figure.ratio)
    ways = list(dict.fromkeys(way for by_way in found.values() for way in by_way))
    lines = [
        [
            name,
            *(f"{min(by_way[way]):.2f} to {max(by_way[way]):.2f}" if way in by_way else "-" for way in ways),
        ]
        for name, by_way in found.items()
    ]
    return Table("Estimate / truth at all brokers, lowest to highest", ["client", *ways], lines)


def notes(compared: Compared, kinds: Mapping[str, Kind]) -> list[str]:
    """Return notes for readers: each target with its verdict, then the failures."""
    told = []
    for way in compared.pairs:
        told += [_note(compared.version, way, verdict) for verdict in verdicts(figures(compared, way), kinds)]
    return told + compared.problems


def _note(version: str, way: str, verdict: Verdict) -> str:
    reached = "reached" if verdict.reached else "NOT REACHED"
    return f"{version}, {way}: {verdict.target}: {reached} ({verdict.found})"


def as_json(compared: Compared, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """Return the comparison at one broker in a form for `json.dumps`: all figures, verdicts and failures."""
    return {
        "broker": compared.version,
        "clients": [
            {
                "way": way,
                "workload": figure.name,
                "requests": figure.requests,
                "seconds": figure.seconds,
                "truth_us": figure.truth_us,
                "estimate_us": figure.estimate_us,
                "apis": [
                    {
                        "api": part.name,
                        "requests": part.requests,
                        "truth_us": part.truth_us,
                        "estimate_us": part.estimate_us,
                        "done": _done(compared, way, figure.name, part.name),
                    }
                    for part in by_api(compared.pairs[way][figure.name])
                ],
            }
            for way in compared.pairs
            for figure in figures(compared, way)
        ],
        "targets": [
            {"way": way, "target": verdict.target, "reached": verdict.reached, "found": verdict.found}
            for way in compared.pairs
            for verdict in verdicts(figures(compared, way), kinds)
        ],
        "problems": compared.problems,
    }


def _done(compared: Compared, way: str, workload: str, api: str) -> dict[str, float]:
    """Return the sums of features of one API of a client, from which estimates with other tables of costs can
    be computed later.
    """
    return next(dict(seen.done) for seen, _ in compared.pairs[way][workload] if seen.api == api)


def costs(old: CostTable, new: CostTable) -> Table:
    """Return a table with the coefficients of two tables of costs side by side."""
    names = sorted({*old.apis, *new.apis})
    lines = [[name, _terms(old.apis.get(name)), _terms(new.apis.get(name))] for name in names]
    lines += [
        ["the rest", _terms(old.rest), _terms(new.rest)],
        ["a cold broker", f"{old.cold.us:g}", f"{new.cold.us:g}"],
    ]
    return Table(f"costs at Kafka {new.broker} in µs", ("API", "before", "measured"), lines)


def _terms(cost: ApiCost | None) -> str:
    if cost is None:
        return "-"
    named: Sequence[tuple[float, str]] = (
        (cost.us_per_request_kb, "/ request kB"),
        (cost.us_per_response_kb, "/ response kB"),
        (cost.us_per_session_kb, "/ session kB"),
        (cost.us_per_partition, "/ partition"),
        (cost.us_acks_all, "for acks=all"),
        (cost.us_per_converted_kb, "/ converted kB"),
        *((us, f"/ kB of {codec}") for codec, us in cost.us_per_unpacked_kb.items()),
    )
    return " + ".join([f"{cost.us:g}", *(f"{us:g} {what}" for us, what in named if us)])
