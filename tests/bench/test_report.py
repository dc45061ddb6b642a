"""What is printed of results, and kept of them."""

from __future__ import annotations

import json

from bench import report
from bench.generator import Measured
from bench.measure import Results, steps
from bench.rows import ROWS
from bench.targets import TARGETS
from bench.targets.weir import quota_file
from quotas import parse

DIRECT, HAPROXY, WEIR, WITHOUT = TARGETS
ROW = ROWS[1]


def measured(cpu_us: float | None, *, own_s: float = 0.5) -> Measured:
    """A thousand requests within a second."""
    return Measured(1000, 1.0, 250.0, 1500.0, None if cpu_us is None else cpu_us / 1000, own_s)


def results(**cells: list[Measured]) -> Results:
    found = Results([ROW], TARGETS)
    found.cells.update({(ROW.name, name.replace("_", "-")): rounds for name, rounds in cells.items()})
    return found


def test_tables_have_medians_ranges_and_ratios_within_rounds() -> None:
    text = report.markdown(
        results(
            direct=[measured(None)] * 3,
            haproxy=[measured(10), measured(100), measured(20)],
            weir=[measured(12), measured(150), measured(22)],
            weir_no_quotas=[measured(10), measured(100), measured(20)],
        )
    )
    line = "| 20.0 (10.0 to 100.0) | 22.0 (12.0 to 150.0) | 20.0 (10.0 to 100.0) | 1.20 | 1.00 |"
    assert f"| {ROW.title} {line}" in text
    assert "1,000/s, 0.25 / 1.50" in text
    assert "busy" not in text


def test_a_missing_target_has_an_empty_column_and_a_reason() -> None:
    found = results(direct=[measured(None)], weir=[measured(12)], weir_no_quotas=[measured(10)])
    found.missing["haproxy"] = "it is not installed"
    text = report.markdown(found)
    assert f"| {ROW.title} | — | 12.0 (12.0 to 12.0) | 10.0 (10.0 to 10.0) |" in text
    assert "- HAProxy (TCP) was not measured: it is not installed" in text
    assert "÷" not in text


def test_a_busy_load_generator_is_told() -> None:
    text = report.markdown(results(weir=[measured(12, own_s=0.95)]))
    assert f"- {ROW.title}: the load generator was busy (Weir, quotas on 95% of a core)" in text


def test_json_has_every_round() -> None:
    kept = json.loads(json.dumps(report.as_json(results(weir=[measured(12), measured(14)]), {"rounds": 2})))
    (cell,) = kept["cells"]
    assert (cell["row"], cell["target"]) == (ROW.name, WEIR.name)
    assert [figures["cpu_us"] for figures in cell["rounds"]] == [12, 14]
    assert set(kept["machine"]) == {"cores", "architecture", "kernel", "python"}


def test_steps_are_a_warm_up_per_row_and_a_run_per_cell_and_round() -> None:
    assert steps(ROWS, TARGETS, rounds=5) == 7 + 7 * 4 * 5


def test_the_quota_file_is_one_that_weir_reads() -> None:
    assert len(parse(quota_file())) == 2


def test_names_on_the_command_line_are_unique() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert len({target.name for target in TARGETS}) == len(TARGETS)
