"""Every test is in one lane, and what the lanes say of themselves is what pytest has said."""

from __future__ import annotations

import ast
import io
import itertools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from _pytest.mark.expression import Expression
from click.testing import CliRunner
from rich.console import Console

from tests.selection import is_in_part, parse_part
from tools.lanes import __main__ as command
from tools.lanes.again import FAILED_MAX, again
from tools.lanes.lane import LANES, ROOT, Extent, Lane, modules
from tools.lanes.results import CHOSEN, Case, Outcome, plain_counts, read_cases, slowest
from tools.lanes.runner import Background, run_lane
from tools.lanes.summary import show

LANE_MARKS = ("broker", "oracle", "spark", "measured", "alone")
NAMED_CONFTEST = ("-p", "no:cacheprovider", "-p", "tests.conftest")
"""Options for a test module outside of tests/, for which pytest would not find the file."""
MODULE = """
import pytest

def test_passes(): pass
def test_fails(): assert 0
def test_skips(): pytest.skip("no camera here")

@pytest.fixture
def broken():
    yield
    raise OSError

def test_fails_at_its_end(broken): pass
def test_fails_before_it_begins(missing): pass
"""


def selects(lane: Lane, extent: Extent, marks: set[str]) -> bool:
    """Return whether `pytest -m` takes a test with these marks, by pytest's own reading of expressions."""
    if not lane.runs(extent):
        return False

    def has_mark(name: str, /, **_: object) -> bool:
        return name in marks

    return Expression.compile(lane.expression(extent)).evaluate(has_mark)


def every_set_of_marks() -> list[set[str]]:
    marks_ = (*LANE_MARKS, "core", "slow")
    sizes = range(len(marks_) + 1)
    found = [set(each) for size in sizes for each in itertools.combinations(marks_, size)]
    # `measured` is about tests with brokers.
    return [marks for marks in found if "measured" not in marks or "broker" in marks]


@pytest.mark.parametrize("marks", every_set_of_marks(), ids=lambda marks: "-".join(sorted(marks)) or "none")
def test_each_test_is_in_one_lane_and_there_either_core_or_rest(marks: set[str]) -> None:
    assert [lane.name for lane in LANES if selects(lane, Extent.ALL, marks)] == [
        lane.name for lane in LANES if selects(lane, Extent.CORE, marks) != selects(lane, Extent.REST, marks)
    ]
    assert sum(selects(lane, Extent.ALL, marks) for lane in LANES) == 1


def test_make_test_runs_every_test_without_broker_and_spark_that_is_not_slow() -> None:
    assert [lane.name for lane in LANES if selects(lane, Extent.CORE, set())] == ["fast"]
    assert [lane.name for lane in LANES if selects(lane, Extent.CORE, {"slow"})] == []


@pytest.mark.slow
def test_a_lane_in_the_background_prints_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.lanes.lane.REPORTS", tmp_path)
    said: list[str] = []
    background = Background(Lane("no-such", "nothing", "fast", options=("--no-such-option",)), Extent.ALL, [])
    outcome = background.finish(said.append)
    assert not outcome.ok
    assert said == ["no-such (all): nothing"]
    assert "--no-such-option" in capfd.readouterr().out


def test_a_lane_collects_only_modules_that_name_its_marks() -> None:
    spark = modules(("spark",))
    assert "tests/pipeline/test_rollup.py" in spark
    assert "tests/quotas/test_rate.py" not in spark
    assert set(spark) < set(modules(("spark", "broker")))


def marks_given_in(source: str) -> set[str]:
    """Return the marks of lanes that a module names, as `pytest.mark.broker` or `mark.broker`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr in LANE_MARKS
        and isinstance(node.value, ast.Attribute | ast.Name)
        and (node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id) == "mark"
    }


def test_marks_of_lanes_are_found_in_a_module() -> None:
    assert marks_given_in("pytestmark = [pytest.mark.broker, mark.alone]  # mark.spark") == {
        "broker",
        "alone",
    }


def test_only_test_modules_give_marks_of_lanes() -> None:
    """A lane collects modules that name its marks: a test with a mark from elsewhere would run in none."""
    helpers = [path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")]
    found = {str(path.relative_to(ROOT)): marks_given_in(path.read_text("utf-8")) for path in helpers}
    assert {path: marks for path, marks in found.items() if marks} == {}


def test_parts_take_each_test_once_and_about_as_many_each() -> None:
    names = [f"tests/a/test_b.py::test_c[{number}]" for number in range(3000)]
    taken = [[name for name in names if is_in_part(name, part, 3)] for part in (1, 2, 3)]
    assert sorted(itertools.chain(*taken)) == sorted(names)
    assert min(map(len, taken)) > 900


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "1", "1/0", "a/b", "1/3/5"])
def test_a_part_that_is_no_part_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="for example --part=2/3"):
        parse_part(text)


def test_a_part_is_read_as_number_and_count() -> None:
    assert parse_part("2/3") == (2, 3)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, ...]:
    """What a run of MODULE has reported."""
    directory = tmp_path_factory.mktemp("lane")
    (directory / "test_module.py").write_text(MODULE)
    report = directory / "report.xml"
    options = ["-q", f"--junitxml={report}", "--rootdir", str(directory), "-p", "no:cacheprovider"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=directory, capture_output=True, check=False
    )
    return read_cases(report)


def test_outcomes_are_read_from_pytests_junit_file(cases: tuple[Case, ...]) -> None:
    assert {case.node_id: case.outcome for case in cases} == {
        "test_module.py::test_passes": "passed",
        "test_module.py::test_fails": "failed",
        "test_module.py::test_skips": "skipped",
        "test_module.py::test_fails_at_its_end": "failed",
        "test_module.py::test_fails_before_it_begins": "failed",
    }
    assert [case.detail for case in cases if case.outcome == "skipped"] == ["no camera here"]


def test_counts_end_with_a_line_that_programs_can_read(cases: tuple[Case, ...]) -> None:
    outcomes = [Outcome("a", cases, 1.0, ok=False), Outcome("b", cases[:1], 1.0, ok=True)]
    assert plain_counts(outcomes) == "2 passed, 3 failed, 1 skipped"


def test_slowest_tests_come_longest_first() -> None:
    outcomes = [
        Outcome("a", (Case("x", 1.0, "passed"), Case("y", 3.0, "passed")), 4.0, ok=True),
        Outcome("b", (Case("z", 2.0, "failed"),), 2.0, ok=False),
    ]
    assert [(lane, case.node_id) for lane, case in slowest(outcomes, 2)] == [("a", "y"), ("b", "z")]


def test_the_summary_names_skips_with_reasons_and_how_to_repeat_failures(cases: tuple[Case, ...]) -> None:
    printed = io.StringIO()
    repeat = ".venv/bin/python -m pytest --hypothesis-seed=7"
    outcomes = [Outcome("fast", cases, 61.0, ok=False, note="it ended with status 1", repeat=repeat)]
    show(Console(file=printed, width=160), outcomes, ["Not run here: 5 tests."], 61.0)
    lines = printed.getvalue().splitlines()
    assert lines[-1] == "1 passed, 3 failed, 1 skipped"
    assert lines[-2] == "Not run here: 5 tests."
    assert "Skipped in fast: test_module.py::test_skips: no camera here" in lines
    assert (
        "Failed in fast; to repeat it: .venv/bin/python -m pytest --hypothesis-seed=7 "
        "'test_module.py::test_fails'"
    ) in lines
    assert any("1:01" in line and "status 1" in line for line in lines)


def test_parameters_of_tests_are_printed_whatever_brackets_they_have() -> None:
    printed = io.StringIO()
    names = ["test_b.py::test_c[librdkafka-3.9.1]", "test_b.py::test_d[/metrics-x]"]
    outcomes = [Outcome("fast", tuple(Case(name, 1.0, "passed") for name in names), 2.0, ok=True)]
    show(Console(file=printed, width=160), outcomes, [], 2.0)
    assert all(name in printed.getvalue() for name in names)


@pytest.mark.slow
@pytest.mark.parametrize(("options", "ok"), [([], False), (["--part=1/3"], True)])
def test_a_lane_without_tests_has_failed_unless_a_part_of_it_was_asked_for(
    options: list[str], ok: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.lanes.lane.REPORTS", tmp_path)
    lane = Lane("empty", "nothing", "alone and not alone", named=("alone",), workers="0")
    outcome = run_lane(lane, Extent.ALL, options, lambda _text: None)
    assert (outcome.ok, outcome.note) == ((True, "") if ok else (False, "it has no tests"))


@pytest.mark.slow
def test_a_module_that_cannot_be_collected_is_named_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    report = tmp_path / "report.xml"
    options = ["-q", f"--junitxml={report}", "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    subprocess.run([sys.executable, "-m", "pytest", *options], cwd=tmp_path, capture_output=True, check=False)
    assert [(case.node_id, case.outcome) for case in read_cases(report)] == [("test_broken.py", "failed")]


@pytest.mark.slow
def test_a_lane_whose_process_dies_without_a_report_has_failed() -> None:
    lane = Lane("no-such", "nothing", "fast", options=("--no-such-option",))
    outcome = run_lane(lane, Extent.ALL, [], lambda _text: None)
    assert not outcome.ok
    assert "no report" in outcome.note


@pytest.mark.parametrize("ok", [True, False])
def test_the_exit_code_is_1_if_a_lane_has_failed(monkeypatch: pytest.MonkeyPatch, ok: bool) -> None:
    monkeypatch.setattr(command, "run_lane", lambda *_: Outcome("fast", (), 1.0, ok=ok))
    result = CliRunner().invoke(command.main, ["run", "fast"])
    assert result.exit_code == (0 if ok else 1)
    assert result.output.endswith("0 passed, 0 failed, 0 skipped\n")


def test_every_module_of_a_lane_exists() -> None:
    assert all((ROOT / Path(path)).exists() for lane in LANES for path in lane.paths())


def outcome_of(module: Path, report: Path) -> Outcome:
    """Run a test module as a lane does."""
    lane = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"--junitxml={report}"]
    subprocess.run([*lane, str(module)], cwd=ROOT, check=False, capture_output=True)
    return Outcome("brokers", read_cases(report), 1.0, ok=False, alone=alone, is_complete=True)


def alone(options: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-n", "0", *options, f"@{CHOSEN}"]


@pytest.fixture
def passes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a test module whose test fails in its first run only. It is in the checkout, as tests are whose
    names pytest can find again.
    """
    monkeypatch.setattr("tools.lanes.again.REPORTS", tmp_path)
    (ROOT / "build").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=ROOT / "build", prefix="lanes_") as folder:
        module = Path(folder) / "test_loaded.py"
        module.write_text(
            "from pathlib import Path\n"
            "RAN = Path(__file__).with_suffix('.ran')\n"
            "def test_first():\n"
            "    ran = RAN.exists()\n"
            "    RAN.touch()\n"
            "    assert ran\n"
        )
        yield module


@pytest.mark.slow
def test_a_timed_test_that_passes_alone_passes_and_is_named(passes_alone: Path, tmp_path: Path) -> None:
    first = outcome_of(passes_alone, tmp_path / "first.xml")
    [outcome] = again([first], lambda _text: None)
    assert outcome.ok
    assert outcome.passed_alone == tuple(case.node_id for case in first.cases)
    printed = io.StringIO()
    show(Console(file=printed, width=160), [outcome], [], 1.0)
    assert f"and passed alone: {first.cases[0].node_id}" in printed.getvalue()
    assert printed.getvalue().splitlines()[-1] == "1 passed, 0 failed, 0 skipped"


@pytest.mark.slow
def test_a_test_that_fails_alone_too_has_failed(passes_alone: Path, tmp_path: Path) -> None:
    passes_alone.write_text(passes_alone.read_text() + "def test_second():\n    assert 0\n")
    [outcome] = again([outcome_of(passes_alone, tmp_path / "first.xml")], lambda _text: None)
    assert not outcome.ok
    assert [case.outcome for case in outcome.cases] == ["passed", "failed"]


def test_only_a_few_failed_tests_of_a_complete_lane_run_again() -> None:
    failed = tuple(Case(f"test_a.py::test_{number}", 1.0, "failed") for number in range(FAILED_MAX + 1))
    outcomes = [
        Outcome("brokers", failed[:1], 1.0, ok=False),
        Outcome("brokers", failed, 1.0, ok=False, is_complete=True),
        Outcome("brokers", (), 1.0, ok=True, is_complete=True),
    ]
    assert again(outcomes, pytest.fail) == outcomes


@pytest.mark.slow
@pytest.mark.parametrize(("until_s", "outcome"), [(1, "skipped"), (1e12, "passed")])
def test_a_test_that_would_begin_after_the_given_time_is_skipped_and_only_counted(
    until_s: float, outcome: str, passes_alone: Path, tmp_path: Path
) -> None:
    passes_alone.write_text("def test_first():\n    pass\n")
    report = tmp_path / "report.xml"
    options = ["-q", "-n", "0", *NAMED_CONFTEST, f"--until={until_s}", f"--junitxml={report}"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(passes_alone)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    cases = read_cases(report)
    assert [case.outcome for case in cases] == [outcome]
    printed = io.StringIO()
    show(Console(file=printed, width=160), [Outcome("rest", cases, 1.0, ok=True)], [], 1.0)
    named = [line for line in printed.getvalue().splitlines() if line.startswith("Skipped")]
    expected = ["Skipped in rest: 1 of 1 tests: the time of --until was over"]
    assert named == (expected if outcome == "skipped" else [])


@pytest.mark.slow
def test_a_skipped_second_run_leaves_the_test_failed(passes_alone: Path, tmp_path: Path) -> None:
    first = outcome_of(passes_alone, tmp_path / "first.xml")
    [outcome] = again([first], lambda _text: None, [*NAMED_CONFTEST, "--until=1"])
    assert not outcome.ok
    assert [case.outcome for case in read_cases(tmp_path / "again.xml")] == ["skipped"]
    assert [case.outcome for case in outcome.cases] == ["failed"]
