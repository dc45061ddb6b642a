"""The order of a run."""

from __future__ import annotations

from bench.measure import turns
from bench.rows import ROWS
from bench.targets import TARGETS


def test_each_round_of_a_benchmark_begins_with_another_target() -> None:
    rows, targets = ROWS[:2], TARGETS[:3]
    rounds = [[(row.name, target.name) for row, target in turns(rows, targets, n)] for n in range(3)]
    one, two, three = (target.name for target in targets)
    for number, order in enumerate([(one, two, three), (two, three, one), (three, one, two)]):
        assert rounds[number] == [(row.name, name) for row in rows for name in order]
