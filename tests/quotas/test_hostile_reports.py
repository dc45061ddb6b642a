"""Reports of somebody else in the topic of shared usage: they end no sharing, and are counted."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from weir.quotas.sharing.others import LATE_MS, OthersUsage
from weir.quotas.sharing.report import Report, Usage

LAST: Final = 2**64 - 1
PERIOD_MS: Final = 500
NAMES: Final = st.sampled_from(["me", "other", "invented"])
NUMBERS: Final = st.one_of(st.integers(0, 5), st.integers(0, 3000), st.integers(0, LAST))
TOTALS: Final = st.floats(0, 1e18)
FORGED: Final = st.builds(
    lambda weir, incarnation, sequence, usages: Report(weir, incarnation, sequence, tuple(usages)),
    NAMES,
    st.integers(1, 3),
    NUMBERS,
    st.lists(st.builds(lambda total: Usage(7, total, total), TOTALS), max_size=2),
)


def charged(others: OthersUsage) -> float:
    return sum(each.units for charges in others.charges().values() for each in charges)


def test_a_forged_own_report_with_the_last_sequence_hides_no_own_report() -> None:
    others = OthersUsage("me", 1)
    for sequence in range(4):
        others.sent = sequence + 1
        others.take(Report("me", 1, LAST), PERIOD_MS * sequence)
        others.take(Report("me", 1, sequence), PERIOD_MS * sequence)
    assert others.returned() == [0, 1, 2, 3]
    assert (others.read_back, others.ignored) == (3, {"forged": 4})


def test_a_forged_report_with_the_last_sequence_hides_no_report_of_its_weir() -> None:
    others = OthersUsage("me", 1)
    for sequence in range(4):
        total = 10.0 * sequence + 10
        others.take(Report("other", 1, sequence, (Usage(7, total, 10),)), PERIOD_MS * sequence)
        others.take(Report("other", 1, LAST), PERIOD_MS * sequence)
    assert charged(others) == 40
    assert others.ignored == {"jumped": 4}


def test_reports_that_arrive_again_are_counted() -> None:
    others = OthersUsage("me", 1)
    others.sent = 1
    for report in [Report("me", 1, 0), Report("other", 1, 0)] * 3:
        others.take(report, 0)
    assert others.ignored == {"repeated": 4}


@given(st.lists(st.tuples(st.integers(0, 2000), FORGED), max_size=30))
def test_hostile_reports_hide_others_only_while_they_come(
    hostile: list[tuple[int, Report]],
) -> None:
    """The other Weir reports 10 units twice a second, and its usage counts again soon after the last lie."""
    others, now_ms, sequence, returned = OthersUsage("me", 1), 0, 0, list[int]()

    def report_honestly() -> None:
        nonlocal sequence
        others.sent = sequence + 1
        others.take(Report("me", 1, sequence), now_ms)
        total = 10.0 * sequence + 10
        others.take(Report("other", 1, sequence, (Usage(7, total, 10),)), now_ms)
        returned.extend(others.returned())
        sequence += 1

    for pause_ms, report in hostile:
        for _ in range(pause_ms // PERIOD_MS):
            now_ms += PERIOD_MS
            report_honestly()
        others.take(report, now_ms)
    for _ in range(2 * LATE_MS // PERIOD_MS + 2):
        now_ms += PERIOD_MS
        report_honestly()
    others.charges()
    others.ignored.clear()
    for _ in range(10):
        now_ms += PERIOD_MS
        report_honestly()
    assert charged(others) == 100
    assert not others.ignored
    assert set(returned) >= set(range(sequence - 10, sequence))
