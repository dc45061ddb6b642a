"""The mutation tester: what it changes, which tests it runs, what it reports."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

from tools.mutants import __main__ as command
from tools.mutants.mutations import difference, mutated, mutations_of, sample
from tools.mutants.selection import SECONDS_MAX, Measured, covering_tests
from tools.mutants.trees import Outcome, Tree

if TYPE_CHECKING:
    from click.testing import Result

ROOT: Final = Path(__file__).parents[2]

# Which mutations there are


def changes(source: str) -> set[str]:
    """Every mutant of a module of one line, or the lines that were added in it."""
    found = [each for places in mutations_of("m.py", source).values() for each in places]
    return {difference(source, mutated(source, each)).partition("\n+")[2] for each in found}


def test_comparisons_numbers_and_conditions_are_changed() -> None:
    found = changes("if a < 1: pass\n")
    assert found >= {"if a <= 1: pass", "if a >= 1: pass", "if a < 2: pass", "if not a < 1: pass"}


@pytest.mark.parametrize(
    "source",
    [
        "def f(a: int | None, *, b: bytes | None) -> int | None: ...\n",
        "a: int | None\n",
        "A: TypeAlias = 'int' | None\n",
        "assert a < 1\n",
        "if TYPE_CHECKING:\n    a = 1\n",
        "'''One and two, not three or 4.'''\n",
    ],
)
def test_nothing_is_changed_that_tests_cannot_notice(source: str) -> None:
    assert mutations_of("m.py", source) == {}


def test_defaults_of_arguments_are_changed() -> None:
    assert changes("def f(a: int | None = 1, *, b: bool = True) -> int | None: ...\n") == {
        "def f(a: int | None = 2, *, b: bool = True) -> int | None: ...",
        "def f(a: int | None = 0, *, b: bool = True) -> int | None: ...",
        "def f(a: int | None = 1, *, b: bool = False) -> int | None: ...",
    }


def test_a_seed_draws_the_same_sample_of_different_places() -> None:
    sources = {"a.py": "a = 1 + 2\nb = 3 * 4\n", "b.py": "c = 5 - 6\n"}
    drawn = sample(sources, 5, seed=1)
    assert drawn == sample(dict(reversed(sources.items())), 5, seed=1)
    assert drawn != sample(sources, 5, seed=2)
    assert len(sample(sources, 100, seed=1)) == 9, "six numbers and three operators"


# Which tests are run

SOURCE: Final = """\
BOUND: Final = 32

class Limits:
    most: int = 7

    @property
    def half(self) -> int:
        return (
            self.most // 2
        )

def bounded(value: int, least: int = 0) -> int:
    if value < least:
        return least
    return min(value, BOUND)
"""
OTHER: Final = "def twice(limits):\n    return limits.most * 2\n"
MEASURED: Final = Measured(
    {
        "m.py": {9: {"half"}, 13: {"low", "high"}, 14: {"low"}, 15: {"high"}},
        "other.py": {2: {"twice"}},
    },
    {"low": 2.0, "high": 1.0, "half": 0.5, "twice": 0.1},
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(15, ["high"], id="a-statement"),
        pytest.param(13, ["high", "low"], id="quickest-first"),
        pytest.param(8, ["half"], id="a-statement-of-several-lines"),
        pytest.param(12, ["high", "low"], id="the-head-of-a-function"),
        pytest.param(6, ["half"], id="a-decorator"),
        pytest.param(1, ["high"], id="a-constant-where-it-is-used"),
        pytest.param(4, ["twice", "half"], id="a-field-also-in-other-modules"),
    ],
)
def test_the_tests_that_run_a_line_are_found(line: int, expected: list[str]) -> None:
    assert covering_tests("m.py", line, {"m.py": SOURCE, "other.py": OTHER}, {}, MEASURED) == expected


def test_of_a_line_that_defines_nothing_all_tests_of_its_module_are_run() -> None:
    source = "register(1)\ndef f():\n    pass\n"
    assert covering_tests("m.py", 1, {"m.py": source}, {}, Measured({"m.py": {3: {"f"}}})) == ["f"]


def test_of_a_constant_the_test_files_that_name_it_are_run() -> None:
    tests = {"test_a.py": "from m import BOUND", "test_b.py": "BOUNDS"}
    measured = Measured({}, {"test_a.py::test_1": 2.0, "test_a.py::test_2": 1.0, "test_b.py::test_3": 0.1})
    assert covering_tests("m.py", 1, {"m.py": SOURCE}, tests, measured) == [
        "test_a.py::test_2",
        "test_a.py::test_1",
    ]


def test_a_line_that_no_test_runs_has_none() -> None:
    assert covering_tests("m.py", 15, {"m.py": SOURCE}, {}, Measured()) == []


def test_the_tests_of_a_mutant_take_a_bounded_time_but_one_is_always_run() -> None:
    third = SECONDS_MAX / 3 + 1
    tests = {"m.py": {15: {"a", "b", "c"}}}
    seconds = dict.fromkeys("abc", third)
    assert covering_tests("m.py", 15, {"m.py": SOURCE}, {}, Measured(tests, seconds)) == ["a", "b"]
    seconds = dict.fromkeys("abc", 2 * SECONDS_MAX)
    assert covering_tests("m.py", 15, {"m.py": SOURCE}, {}, Measured(tests, seconds)) == ["a"]


# From end to end

MODULE: Final = """\
def at_least(value: int) -> int:
    return max(value, 1)


def at_most(value: int) -> int:
    return min(value, 9)


def never() -> int:
    return 5
"""
TESTS: Final = """\
import threading

from weir.quotas.rules import at_least, at_most


def test_at_least() -> None:
    assert at_least(5) == 5


def test_at_most() -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(at_most(99)))
    thread.start()
    thread.join()
    assert found == [9]
"""
PYPROJECT: Final = """\
[tool.pytest.ini_options]
addopts = "--import-mode=importlib"
pythonpath = ["."]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A tree with a module, two tests, and the tool."""
    root = tmp_path / "project"
    texts = {"quotas/rules.py": MODULE, "tests/quotas/test_rules.py": TESTS, "pyproject.toml": PYPROJECT}
    texts |= {"quotas/__init__.py": "", "tests/proxy/test_nothing.py": ""}
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    (root / "weir").mkdir()
    (root / "weir" / "__init__.py").touch()
    (root / "weir" / "quotas").symlink_to("../quotas")
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.main, ["--jobs", "1", *arguments])


@pytest.mark.slow
def test_survivors_are_listed_with_their_change_and_the_checkout_stays_as_it_is(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that fails without a mutant is named, and kills none."""
    monkeypatch.setattr(command, "ROOT", project)
    red = "from weir.quotas.rules import never\n\n\ndef test_red() -> None:\n    assert never() == 6\n"
    (project / "tests/quotas/test_red.py").write_text(red, "utf-8")
    done = run("--seed", "3")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == "3 mutants, seed 3"
    assert lines[-1] == "1 of 3 mutants killed (0 by timeout), 2 survived"
    assert "fails without any mutant, and is not used: tests/quotas/test_red.py::test_red" in lines
    assert "quotas/rules.py:2 NumberReplacer survived" in lines
    assert "-    return max(value, 1)" in lines
    assert "quotas/rules.py:10 NumberReplacer survived (no test runs it)" in lines
    assert "-    return min(value, 9)" not in lines, "killed, in a thread of the test's own"
    assert (project / "quotas/rules.py").read_text("utf-8") == MODULE
    again = run("--seed", "3", "--minutes", "0")
    assert again.output.splitlines()[-1] == "3 were not tested: no time left (--minutes)"
    assert "measuring" not in again.output, "the sources are the same"


@pytest.mark.slow
def test_if_no_test_passes_without_a_mutant_the_status_is_1(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ROOT", project)
    (project / "tests/quotas/test_rules.py").write_text(
        "def test_red() -> None:\n    assert False\n", "utf-8"
    )
    done = run()
    assert done.exit_code == 1
    assert "no test passes without a mutant" in done.output


def test_an_unknown_module_is_refused() -> None:
    done = run("quotas/nothing.py")
    assert done.exit_code == 2
    rooms = "quotas, proxy/connection, proxy/handlers"
    assert f"quotas/nothing.py is none of the modules in {rooms}" in done.output


@pytest.mark.slow
def test_a_mutant_that_does_not_end_is_stopped_and_the_module_restored(project: Path) -> None:
    tree = Tree(project)
    endless, tests = MODULE.replace("max(value, 1)", "sum(iter(int, 1))"), ["tests/quotas/test_rules.py"]
    outcome = tree.judge("quotas/rules.py", endless, tests, timeout_s=3)
    assert outcome is Outcome.TIMED_OUT
    assert (project / "quotas/rules.py").read_text("utf-8") == MODULE
