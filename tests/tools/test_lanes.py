"""Every test is in one lane, and a failed test is a failure of its lane and of the command."""

from __future__ import annotations

import ast
import itertools
from pathlib import PurePath

import pytest
from _pytest.mark.expression import Expression

from tools.lanes.concerned import MODULES_MAX, concerned
from tools.lanes.lane import ALWAYS, LANES, ROOT, Extent, Lane

LANE_MARKS = ("broker", "oracle", "spark", "cluster", "measured", "alone", "image")


def selects(lane: Lane, extent: Extent, marks: set[str]) -> bool:
    """Return whether `pytest -m` takes a test with these marks, by pytest's own reading of expressions."""

    def has_mark(name: str, /, **_: object) -> bool:
        return name in marks

    return lane.runs(extent) and Expression.compile(lane.expression(extent)).evaluate(has_mark)


def test_each_test_is_in_one_lane_and_there_either_core_or_rest() -> None:
    names = (*LANE_MARKS, "core", "slow")
    for chosen in itertools.product((False, True), repeat=len(names)):
        marks = set(itertools.compress(names, chosen))
        if ("measured" in marks and "broker" not in marks) or {"image"} < marks:
            continue  # `measured` is about tests with brokers, and `image` has no other mark
        found = {extent: [lane.name for lane in LANES if selects(lane, extent, marks)] for extent in Extent}
        assert found[Extent.ALL] == found[Extent.CORE] + found[Extent.REST], marks
        assert len(found[Extent.ALL]) == 1, marks


def test_only_test_modules_give_marks_of_lanes() -> None:
    """A lane collects modules that name its marks: a test with a mark from elsewhere would run in none."""
    helpers = [path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")]
    found = [
        f"{path}:{node.lineno}"
        for path in helpers
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in LANE_MARKS
        and ast.unparse(node.value) in ("mark", "pytest.mark")
    ]
    assert found == []


@pytest.mark.parametrize(
    ("changed", "test"),
    [
        ("quotas/limiters/rate.py", "tests/quotas/test_rate.py"),
        ("protocol/schemas/000_produce.json", "tests/protocol/test_codec.py"),
        ("proxy/admin/page/static/page.js", "tests/admin/test_page_files.py"),
        ("tools/lanes/lane.py", "tests/tools/test_lanes.py"),
        ("docs/how-to/operations.md", "tests/deploy/test_operations_page.py"),
    ],
)
def test_a_change_concerns_the_nearest_tests(changed: str, test: str) -> None:
    found = concerned([PurePath(changed)])
    assert test in found
    assert len(found) <= MODULES_MAX


def test_a_changed_test_runs_first_and_tests_for_any_change_exist() -> None:
    assert concerned([PurePath("tests/quotas/test_rate.py")])[0] == "tests/quotas/test_rate.py"
    assert [path for path in ALWAYS if not (ROOT / path).is_file()] == []
