"""Reports of somebody else in the topic of shared usage: they end no sharing, and are counted."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.quotas.client_quotas import byte_rates
from weir.quotas.limiters.budgets import Budget
from weir.quotas.sharing.blindness import Blindness
from weir.quotas.sharing.others import (
    HEARD_MS,
    INCARNATIONS_MAX,
    LATE_MS,
    WEIRS_MAX,
    OthersCharge,
    OthersUsage,
)
from weir.quotas.sharing.own import OwnUsage
from weir.quotas.sharing.report import (
    LimiterUsage,
    ReportError,
    ReportKey,
    UnsignedReportError,
    UsageReport,
    decode,
    encode,
    limiter_number,
)
from weir.quotas.sharing.shared import SharedLimiters
from weir.quotas.table.entities import Entity, Tags
from weir.quotas.table.quota_table import QuotaKey, QuotaTable

LAST: Final = 2**64 - 1
PERIOD_MS: Final = 500
NAMES: Final = st.sampled_from(["me", "other", "invented"])
NUMBERS: Final = st.one_of(st.integers(0, 5), st.integers(0, 3000), st.integers(0, LAST))
TOTALS: Final = st.floats(0, 1e18)
FORGED: Final = st.builds(
    lambda weir, incarnation, sequence, usages: UsageReport(weir, incarnation, sequence, tuple(usages)),
    NAMES,
    st.integers(1, 3),
    NUMBERS,
    st.lists(st.builds(lambda total: LimiterUsage(7, total, total), TOTALS), max_size=2),
)


def charged(others: OthersUsage) -> float:
    return sum(each.units for charges in others.charges().values() for each in charges)


def test_a_forged_own_report_with_the_last_sequence_hides_no_own_report() -> None:
    others = OthersUsage("me", 1)
    for sequence in range(4):
        others.sent = sequence + 1
        others.take(UsageReport("me", 1, LAST), PERIOD_MS * sequence)
        others.take(UsageReport("me", 1, sequence), PERIOD_MS * sequence)
    assert others.returned() == [0, 1, 2, 3]
    assert (others.read_back, others.ignored) == (3, {"forged": 4})


def test_a_forged_report_with_the_last_sequence_hides_no_report_of_its_weir() -> None:
    others = OthersUsage("me", 1)
    for sequence in range(4):
        total = 10.0 * sequence + 10
        others.take(UsageReport("other", 1, sequence, (LimiterUsage(7, total, 10),)), PERIOD_MS * sequence)
        others.take(UsageReport("other", 1, LAST), PERIOD_MS * sequence)
    assert charged(others) == 40
    assert others.ignored == {"jumped": 4}


def test_reports_that_arrive_again_are_counted() -> None:
    others = OthersUsage("me", 1)
    others.sent = 1
    for report in [UsageReport("me", 1, 0), UsageReport("other", 1, 0)] * 3:
        others.take(report, 0)
    assert others.ignored == {"repeated": 4}


@given(st.lists(st.tuples(st.integers(0, 2000), FORGED), max_size=30))
def test_hostile_reports_hide_others_only_while_they_come(
    hostile: list[tuple[int, UsageReport]],
) -> None:
    """The other Weir reports 10 units twice a second, and its usage counts again soon after the last lie."""
    others, now_ms, sequence, returned = OthersUsage("me", 1), 0, 0, list[int]()

    def report_honestly() -> None:
        nonlocal sequence
        others.sent = sequence + 1
        others.take(UsageReport("me", 1, sequence), now_ms)
        total = 10.0 * sequence + 10
        others.take(UsageReport("other", 1, sequence, (LimiterUsage(7, total, 10),)), now_ms)
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


def test_reports_of_too_many_weirs_are_counted_until_one_is_silent() -> None:
    others = OthersUsage("me", 1)
    crowd = [str(number) for number in range(WEIRS_MAX - 1)]
    for name in (*crowd, "c", "me", "c"):
        others.take(UsageReport(name, 9, 0, (LimiterUsage(7, 10, 10),)), 0)
    assert charged(others) == 10 * WEIRS_MAX
    assert (len(others.weirs(0)), others.ignored) == (WEIRS_MAX, {"weirs": 2})
    for name in crowd[1:]:
        others.take(UsageReport(name, 9, 1), HEARD_MS)
    others.take(UsageReport("c", 9, 1, (LimiterUsage(7, 10, 10),)), HEARD_MS)  # in the place of "0"
    others.take(UsageReport("0", 9, 1), HEARD_MS)
    assert charged(others) == 10
    assert others.ignored == {"weirs": 3}


def test_invented_processes_of_a_weir_have_few_places_and_the_silent_ones_lose_theirs() -> None:
    others = OthersUsage("me", 1)
    for sequence in range(10):
        others.take(
            UsageReport("a", 0, sequence, (LimiterUsage(7, 10.0 * sequence, 0),)), PERIOD_MS * sequence
        )
        others.take(UsageReport("a", 1 + sequence, 0), PERIOD_MS * sequence)
    assert charged(others) == 90
    assert len(others._weirs["a"]) == INCARNATIONS_MAX


def test_work_for_a_usage_does_not_grow_with_the_number_of_weirs() -> None:
    """Python calls of a report with 100 limiters, which 2 and 31 other Weirs use."""

    def calls(weirs: int) -> int:
        others, count = OthersUsage("me", 1), 0
        usages = tuple(LimiterUsage(number, 10, 10) for number in range(100))

        def profile(_frame: object, event: str, _argument: object) -> None:
            nonlocal count
            count += event.endswith("call")

        for number in range(weirs):
            others.take(UsageReport(f"w{number}", 1, 0, usages), number)
        sys.setprofile(profile)
        try:
            others.take(
                UsageReport("w0", 1, 1, tuple(LimiterUsage(number, 20, 10) for number in range(100))), 100
            )
        finally:
            sys.setprofile(None)
        ((*_earlier, charge),) = {tuple(each) for each in others.charges().values()}
        assert charge.weirs == weirs
        return count

    assert calls(31) - calls(2) < 100


def shared(weirs: int) -> tuple[SharedLimiters, Budget, int]:
    """The limiters of a Weir that hears this many; the limiter of user a, 1000 bytes/s, and its number."""
    name, quotas, blindness = (
        (None, "cluster produce", False),
        byte_rates(QuotaKey.PRODUCER_BYTE_RATE),
        Blindness(0),
    )
    quotas.use(QuotaTable({(Entity(user="a"), QuotaKey.PRODUCER_BYTE_RATE): 1000}))
    limiters = SharedLimiters(OwnUsage("me", 1), blindness, 11_000)
    limiters.join(name, quotas, 10)
    blindness.heard(weirs, 0)
    budget = quotas.budget("a", "", 0)
    assert budget is not None
    return limiters, budget, limiter_number(name, Tags("a", ""))


def test_clients_wait_for_usage_of_any_number_of_invented_weirs_for_a_window_at_most() -> None:
    limiters, budget, number = shared(32)
    others = OthersUsage("me", 1)
    for weir in range(900):
        others.take(UsageReport(f"w{weir}", 1, 0, (LimiterUsage(number, 1e15, 1e15),)), 0)
    limiters.absorb(others.charges(), 0)
    assert budget.charge(1, 0) <= 10_000


@pytest.mark.parametrize("reported", [0.0, 4000.0])
def test_usage_that_is_expected_of_others_and_reported_by_them_is_a_window_at_most(reported: float) -> None:
    limiters, budget, number = shared(32)
    limiters.absorb({number: [OthersCharge(0, 1.0 + reported, 31)]}, 0)
    budget.charge(5000, 0)
    limiters.look(0)
    budget.charge(5000, 20)
    limiters.look(20)
    assert sum(units for _at_ms, units in budget.counting(20)) == pytest.approx(20_000, abs=100)


KEY: Final = ReportKey("0123456789abcdef")
REPORT: Final = UsageReport("other", 1, 3, (LimiterUsage(7, 20, 10),))


@given(st.one_of(FORGED.map(encode), FORGED.map(lambda report: encode(report, ReportKey("another key")))))
def test_a_weir_with_a_key_believes_no_report_of_somebody_without_it(data: bytes) -> None:
    with pytest.raises(UnsignedReportError):
        decode(data, KEY)


@given(st.integers(0), st.integers(1, 255))
def test_a_changed_byte_of_a_signed_report_is_noticed(at: int, change: int) -> None:
    data = bytearray(encode(REPORT, KEY))
    data[at % len(data)] ^= change
    with pytest.raises(ReportError):
        decode(bytes(data), KEY)


def test_a_signed_report_has_the_hmac_of_rfc_2104_and_weirs_without_a_key_read_it_too() -> None:
    data = encode(REPORT, KEY)
    found = subprocess.run(
        ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", "key:0123456789abcdef", "-binary"],
        input=data[:-32],
        capture_output=True,
        check=True,
    )
    assert data[-32:] == found.stdout
    assert decode(data, KEY) == decode(data) == REPORT
    assert "0123" not in repr(KEY)


@given(st.lists(st.integers(0, 9), max_size=30))
def test_former_reports_of_a_weir_with_a_key_that_are_sent_again_change_nothing(replays: list[int]) -> None:
    """However long it is silent, and whatever its next sequence is."""
    others = OthersUsage("me", 1, is_signed=True)
    reports = [UsageReport("other", 1, 5000 * n, (LimiterUsage(7, 10.0 * n + 10, 10),)) for n in range(11)]
    for report in reports[:10]:
        others.take(report, 0)
    for number, replay in enumerate(replays):
        others.take(reports[replay], 1900 * number)
    others.take(reports[10], 1900 * len(replays))
    assert charged(others) == 110
