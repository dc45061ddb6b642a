"""What is printed of results, and kept of them."""

from __future__ import annotations

import json
import platform
import tomllib
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from bench import entities, record, render, report, sasl, tls
from bench.idle import Idle
from bench.load import Counted, LoadError, Measured, together
from bench.measure import Results, generators, steps
from bench.report import Outcome
from bench.rows import ROWS
from bench.stats import histogram
from bench.targets import TARGETS
from bench.targets.weir import quota_file, with_entities
from weir.quotas import parse

BY_NAME = {target.name: target for target in TARGETS}
CHOSEN = [BY_NAME[name] for name in ("direct", "haproxy", "kroxylicious", "weir")]
ROW, BIG = ROWS[1], next(row for row in ROWS if row.name == "produce-500kb")


def measured(cpu_us: float | None, *, own_s: float = 0.5) -> Measured:
    """A thousand requests within a second."""
    cpu_s, rss = (None, None) if cpu_us is None else (cpu_us / 1000, 50_000_000)
    return Measured(1000, 1.0, 250.0, 1500.0, cpu_s, rss, own_s)


def outcome(**cells: list[Measured]) -> Outcome:
    load = Results([ROW], CHOSEN)
    load.cells.update({(ROW.name, name): rounds for name, rounds in cells.items()})
    return Outcome(load, Results([], []), load_average=0.1)


def printed(found: Outcome) -> str:
    return render.markdown(report.tables(found), report.notes(found))


DISTURBED = outcome(
    direct=[measured(None, own_s=0.7)] * 3,
    haproxy=[measured(10), measured(100), measured(20)],
    kroxylicious=[measured(20), measured(200), measured(40)],
    weir=[measured(12), measured(150), measured(22)],
)


def test_tables_have_medians_and_ranges() -> None:
    line = "| 20.0 (10.0 to 100.0) | 40.0 (20.0 to 200.0) | 22.0 (12.0 to 150.0) |"
    assert f"| {ROW.title} {line}" in printed(DISTURBED)


def test_ratios_are_taken_within_rounds_and_against_each_other_target() -> None:
    text = printed(DISTURBED)
    assert "| load | Weir, quotas on ÷ HAProxy (TCP) | Weir, quotas on ÷ Kroxylicious (JVM) |" in text
    assert f"| {ROW.title} | 1.20 (1.10 to 1.50) | 0.60 (0.55 to 0.75) |" in text


def test_rows_at_a_fixed_rate_show_latencies_and_the_generators_cpu() -> None:
    cell = "1,000/s, 0.25 / 1.50"
    assert f"| {ROW.title} | {cell} | {cell} | {cell} | {cell} | 50% / 70% |" in printed(DISTURBED)
    assert "busy" not in printed(DISTURBED)


def test_big_requests_are_also_reported_per_mb() -> None:
    load = Results([ROW, BIG], CHOSEN)
    for row in (ROW, BIG):
        load.cells.update({(row.name, target.name): [measured(150)] for target in CHOSEN[1:]})
    per_mb = next(t for t in report.tables(Outcome(load, Results([], []))) if "per MB" in t.title)
    assert [list(line) for line in per_mb.lines] == [[BIG.title, *["300, 500 MB/s"] * 3]]


def test_a_missing_target_has_no_column_but_a_reason() -> None:
    found = outcome(direct=[measured(None)], kroxylicious=[measured(12)], weir=[measured(12)])
    found.load.missing["haproxy"] = "it is not installed"
    text = printed(found)
    assert f"| {ROW.title} | 12.0 (12.0 to 12.0) | 12.0 (12.0 to 12.0) |" in text
    assert f"| {ROW.title} | 1.00 (1.00 to 1.00) |" in text
    assert text.count("HAProxy") == 1
    assert "- HAProxy (TCP) was not measured: it is not installed" in text


def test_the_report_notes_a_busy_load_generator() -> None:
    text = printed(outcome(weir=[measured(12, own_s=0.95)]))
    assert f"- {ROW.title}: the load generator was busy (Weir, quotas on 95% of a core)" in text


def test_the_report_shows_the_memory_that_each_idle_connection_added() -> None:
    found = outcome()
    found.idle["weir"] = Idle(10_000, 30_000_000, 55_000_000, 0.012)
    assert "| Weir, quotas on | 10,000 | 30.0 | 55.0 | 2.5 | 1.2% |" in printed(found)


def test_entities_have_cpu_and_memory() -> None:
    table = Results(entities.rows(), entities.TARGETS)
    for row in table.rows:
        table.cells.update({(row.name, target.name): [measured(40)] for target in table.targets})
    cpu, memory = report.tables(Outcome(Results([], []), table))
    assert list(cpu.head) == ["load", "1 entity", "1,000 entities", "100,000 entities"]
    assert [list(line[1:]) for line in cpu.lines] == [["40.0 (40.0 to 40.0)"] * 3] * 2
    assert [list(line[1:]) for line in memory.lines] == [["50"] * 3] * 2


def test_the_report_has_separate_tables_for_tls() -> None:
    found = outcome(haproxy=[measured(10)], weir=[measured(12)])
    found.tls = Results([ROW], tls.targets(CHOSEN, []))
    found.tls.missing["kroxylicious"] = "not asked"
    found.tls.cells.update({(ROW.name, "haproxy"): [measured(20)], (ROW.name, "weir"): [measured(30)]})
    plain, encrypted = report.tables(found)[0], report.tables(found)[3]
    assert encrypted.title == f"Clients speak TLS to the proxy: {plain.title}"
    assert list(encrypted.lines[0][1:]) == ["20.0 (20.0 to 20.0)", "30.0 (30.0 to 30.0)"]
    assert list(report.tables(found)[4].lines[0][1:]) == ["1.50 (1.50 to 1.50)"]
    assert report.notes(found).count("Kroxylicious (JVM) was not measured: not asked") == 1


def test_the_report_shows_sasl_beside_plain_connections() -> None:
    found = outcome()
    found.sasl = Results([ROW], sasl.TARGETS)
    found.sasl.cells[ROW.name, "weir-plain"] = [measured(10), measured(20)]
    found.sasl.cells[ROW.name, "weir-sasl"] = [measured(11, own_s=0.9), measured(20)]
    (table,) = report.tables(found)
    assert list(table.lines[0]) == [
        ROW.title,
        "15.0 (10.0 to 20.0)",
        "15.5 (11.0 to 20.0)",
        "1.05 (1.00 to 1.10)",
        "90%",
    ]
    (note,) = (note for note in report.notes(found) if "busy" in note)
    assert note.startswith(f"{ROW.title} with SASL: the load generator was busy")


def test_a_report_without_measurements_is_empty() -> None:
    assert printed(outcome()).strip() == ""


def test_the_terminal_report_has_every_figure() -> None:
    out = StringIO()
    console = Console(file=out, width=300)
    render.terminal(console, report.tables(DISTURBED), ["a note [of 1]"])
    for text in ("22.0 (12.0 to 150.0)", "0.60 (0.55 to 0.75)", "a note [of 1]"):
        assert text in out.getvalue()


def test_json_has_every_round_the_machine_and_versions() -> None:
    found = outcome(weir=[measured(12), measured(14)])
    found.idle["weir"] = Idle(10, 1000, 2000, 0.0)
    for name in ("haproxy", "kroxylicious"):
        found.load.missing[name] = "not asked"
    kept = json.loads(json.dumps(record.as_json(found, {"rounds": 2})))
    (cell,) = kept["cells"]
    assert (cell["row"], cell["target"]) == (ROW.name, "weir")
    assert [figures["cpu_us"] for figures in cell["rounds"]] == [12, 14]
    assert set(kept["machine"]) == {
        "cpu",
        "cores",
        "memory_bytes",
        "architecture",
        "kernel",
        "load_average_before",
    }
    assert {"weir", "python", "kafka"} <= set(kept["versions"])
    assert kept["idle"]["weir"]["connection_bytes"] == 100


def test_a_missing_target_has_no_version_in_the_report() -> None:
    """Though nothing has tried yet: its part was not asked for."""
    gone = replace(BY_NAME["haproxy"], missing=lambda: "not here", version=lambda: "2.6")
    assert "haproxy" not in record.versions(Results([], [gone]))


def test_the_report_notes_a_high_load_average() -> None:
    found = outcome()
    assert "quiet" not in printed(found)
    found.load_average = 7.3
    assert "The machine was not quiet: load average 7.3" in printed(found)


def test_the_summary_names_rounds_upstream_and_versions() -> None:
    found = outcome()
    for name in ("haproxy", "kroxylicious"):
        found.load.missing[name] = "not asked"
    told = record.summary(found, {"rounds": 3, "seconds": 2.0, "upstream": "canned"})
    for part in ("3 rounds of 2.0 s in front of canned", platform.python_version(), "kafka 3.9.1"):
        assert part in told


def test_processes_of_the_generator_add_up() -> None:
    parts = [
        Counted(2.0, histogram([100_000] * 3), 0.5, 0.012, 7),
        Counted(2.1, histogram([900_000]), 0.9, None, None),
    ]
    both = together(parts)
    assert (both.requests, both.seconds, both.cpu_s, both.rss_bytes) == (4, 2.0, 0.012, 7)
    assert both.cpu_us == pytest.approx(3000)
    assert both.generator_busy == pytest.approx(0.45)
    assert both.p50_us == pytest.approx(100, rel=0.0025)
    assert both.p99_us == pytest.approx(900, rel=0.0025)


def test_a_load_without_any_response_is_an_error() -> None:
    with pytest.raises(LoadError, match="not one answer"):
        together([Counted(1.0, {}, 0.1, None, None)])


@pytest.mark.parametrize(
    ("busiest", "connections", "cores", "processes"),
    [(0.4, 16, 8, 1), (0.85, 16, 8, 2), (0.85, 1, 8, 1), (0.85, 16, 2, 1), (0.85, 16, 4, 2), (0.0, 4, 1, 1)],
)
def test_a_busy_load_generator_gets_more_processes_if_cores_are_free(
    busiest: float, connections: int, cores: int, processes: int
) -> None:
    assert generators(busiest, connections, cores) == processes


def test_steps_are_a_warm_up_and_the_rounds_for_each_cell() -> None:
    assert steps(rows=7, targets=4, rounds=5) == 7 * 4 + 7 * 4 * 5


def test_weir_parses_the_benchmarks_quota_file() -> None:
    assert len(parse(quota_file())) == 4


def test_a_quota_file_has_as_many_entities_as_asked() -> None:
    names = [f"weir-bench-{number:06}" for number in range(1000)]
    assert [entry["client_id"] for entry in tomllib.loads(quota_file(names))["quota"]] == names


def test_names_on_the_command_line_are_unique() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    targets = [*TARGETS, *(with_entities(count) for count in entities.COUNTS)]
    assert len({target.name for target in targets}) == len(targets)
