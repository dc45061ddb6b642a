"""The parts of sharing: reports, what is due, differences, blindness, and limiters that take part."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.quotas.client_quotas import byte_rates, mutation_rates, request_times
from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.request_time import US_PER_PERCENT
from weir.quotas.sharing.advances import Advances
from weir.quotas.sharing.blindness import Blindness, Sight
from weir.quotas.sharing.others import OthersCharge, OthersUsage
from weir.quotas.sharing.own import SENT_MAX, OwnUsage
from weir.quotas.sharing.report import (
    USAGES_MAX,
    LimiterUsage,
    ReportError,
    UsageReport,
    decode,
    encode,
    limiter_number,
)
from weir.quotas.sharing.shared import SharedLimiters
from weir.quotas.table.entities import DEFAULT, Entity, Tags
from weir.quotas.table.quota_table import QuotaKey, QuotaTable

ID = (None, "cluster produce", False)
TABLE = QuotaTable(
    {
        (Entity(user="a"), QuotaKey.PRODUCER_BYTE_RATE): 1000,
        (Entity(user="a"), QuotaKey.REQUEST_PERCENTAGE): 50,
        (Entity(user="a"), QuotaKey.CONTROLLER_MUTATION_RATE): 10,
    }
)
Usages = st.builds(
    lambda limiter, recent, more: LimiterUsage(limiter, recent + more, recent),
    st.integers(0, 2**64 - 1),
    st.floats(0, 1e15),
    st.floats(0, 1e15),
)


@given(
    st.text(max_size=60), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.lists(Usages, max_size=5)
)
def test_a_report_survives_encoding(
    name: str, incarnation: int, sequence: int, usages: list[LimiterUsage]
) -> None:
    report = UsageReport(name.encode("utf-8", "replace").decode(), incarnation, sequence, tuple(usages))
    assert decode(encode(report)) == report


@given(st.binary(max_size=200))
def test_any_bytes_are_a_report_or_refused(data: bytes) -> None:
    for each in (data, b"WU\x01" + data):
        with suppress(ReportError):
            decode(each)


@pytest.mark.parametrize("total", [float("nan"), float("inf"), -1.0, 1e19])
def test_a_report_of_impossible_units_is_refused(total: float) -> None:
    data = encode(UsageReport("w", 1, 0, (LimiterUsage(1, 5, 5),)))
    with pytest.raises(ReportError):
        decode(data[:-16] + struct.pack(">dd", total, 0.0))


def test_limiters_have_equal_numbers_at_all_weirs_and_others_for_other_names() -> None:
    assert limiter_number((1, "produce", False), Tags("a", "b")) == limiter_number(
        (1, "produce", False), Tags("a", "b")
    )
    others = {
        limiter_number(name, tags)
        for name in [(1, "produce", False), (1, "produce", True), (2, "produce", False), ID]
        for tags in [Tags("a", "b"), Tags("ab", ""), Tags("", "ab"), Tags("a", "", "b")]
    }
    assert len(others) == 16


def test_much_unreported_usage_is_due_after_50_ms_and_little_after_500_ms() -> None:
    own = OwnUsage("w", 1)
    assert [report.usages for report in own.due(0)] == [()]
    own.note(7, 99, window_units=10_000, weirs=2, now_ms=10)
    assert own.due(499) == []
    assert own.due(500) == [UsageReport("w", 1, 1, (LimiterUsage(7, 99, 99),))]
    own.note(7, 101, window_units=10_000, weirs=2, now_ms=510)
    assert own.due(549) == []
    assert own.due(550) == [UsageReport("w", 1, 2, (LimiterUsage(7, 200, 200),))]


def test_a_limiter_whose_report_did_not_leave_is_reported_again_without_further_usage() -> None:
    own = OwnUsage("w", 1)
    own.due(0)
    own.note(7, 300, window_units=10_000, weirs=2, now_ms=10)
    (report,) = own.due(50)
    own.unsent(report.sequence)
    assert own.due(549) == []  # a closed topic is tried twice a second
    assert [report.usages for report in own.due(550)] == [(LimiterUsage(7, 300, 300),)]


def test_a_limiter_is_reported_again_if_a_later_report_came_back_and_its_own_did_not() -> None:
    own = OwnUsage("w", 1)
    own.note(7, 300, window_units=10_000, weirs=2, now_ms=0)
    own.due(0)
    own.due(500)
    own.returned([1])
    assert [report.usages for report in own.due(1000)] == [(LimiterUsage(7, 300, 300),)]
    own.returned([2])
    assert [report.usages for report in own.due(1500)] == [()]


def test_a_limiter_is_reported_again_after_two_seconds_without_a_report_that_came_back() -> None:
    own = OwnUsage("w", 1)
    own.note(7, 300, window_units=10_000, weirs=2, now_ms=0)
    found = [report.usages for now_ms in range(0, 13_000, 500) for report in own.due(now_ms)]
    again = (LimiterUsage(7, 300, 300),)
    assert [500 * number for number, usages in enumerate(found) if usages == again] == [
        *(0, 2000, 4000, 6000, 8000, 10_000)
    ]  # usage of 11 s ago no longer counts


def test_a_closed_topic_gets_one_report_at_a_time_also_about_many_limiters() -> None:
    own = OwnUsage("w", 1)
    (first,) = own.due(0)
    own.unsent(first.sequence)
    for limiter in range(USAGES_MAX + 1):
        own.note(limiter, 1, 10_000, 2, 0)
    (report,) = own.due(500)
    assert len(report.usages) == USAGES_MAX
    own.unsent(report.sequence)
    own.returned([])
    assert sum(len(report.usages) for report in own.due(1000)) == USAGES_MAX + 1


def test_a_total_that_is_reported_again_has_not_shrunk_by_units_given_back() -> None:
    own = OwnUsage("w", 1)
    own.note(7, 300, window_units=10_000, weirs=2, now_ms=0)
    own.due(0)
    own.note(7, -100, window_units=10_000, weirs=2, now_ms=100)
    own.due(500)
    own.returned([1])
    assert [report.usages for report in own.due(1000)] == [(LimiterUsage(7, 300, 200),)]


def charged(others: OthersUsage) -> dict[int, float]:
    return {limiter: sum(each.units for each in charges) for limiter, charges in others.charges().items()}


def test_lost_and_doubled_reports_change_no_total() -> None:
    others = OthersUsage("me", 1)
    reports = [
        UsageReport("w", 1, number, (LimiterUsage(7, 10.0 * (number + 1), 10),)) for number in range(6)
    ]
    for number, report in enumerate([reports[0], reports[2], reports[2], reports[1], reports[5]]):
        others.take(report, 100 * number)
    assert charged(others) == {7: 60}


def test_an_unknown_weir_counts_with_its_recent_units() -> None:
    others = OthersUsage("me", 1)
    others.take(UsageReport("w", 1, 900, (LimiterUsage(7, 1e9, 500),)), 0)
    others.take(UsageReport("w", 2, 0, (LimiterUsage(7, 20, 20),)), 100)  # it was restarted
    assert charged(others) == {7: 520}


def test_usage_is_late_after_a_silence_or_without_a_former_total() -> None:
    """It may have been used seconds ago, so it is no debt."""
    others = OthersUsage("me", 1)
    late = {}
    times_ms = [*range(0, 10_001, 500), *range(11_500, 16_000, 500)]  # two reports are missing
    for sequence, now_ms in enumerate(times_ms):
        others.take(UsageReport("w", 1, sequence, (LimiterUsage(7, 10.0 * sequence + 10, 10),)), now_ms)
        ((charge,),) = others.charges().values()
        late[now_ms] = charge.is_late
    assert [now_ms for now_ms, is_late in late.items() if is_late] == [0, *range(11_500, 14_500, 500)]


def test_late_and_other_usage_of_a_limiter_are_charged_apart() -> None:
    others = OthersUsage("me", 1)
    for sequence in range(3):
        others.take(
            UsageReport("w", 1, sequence, (LimiterUsage(7, 10.0 * sequence + 10, 10),)), 100 * sequence
        )
    assert others.charges() == {7: [OthersCharge(0, 10, 1, True), OthersCharge(100, 20, 1)]}


def test_reports_that_are_read_at_once_count_at_their_times() -> None:
    """Such as those from before the start of a Weir, one each 500 ms."""
    others = OthersUsage("me", 1)
    for sequence in range(20):
        others.take(
            UsageReport("w", 1, sequence, (LimiterUsage(7, 10.0 * sequence, 0),)), 50_000, 500 * sequence
        )
    ((_number, charges),) = others.charges().items()
    assert [charge.at_ms for charge in charges] == list(range(500, 10_000, 1000))
    assert {charge.units for charge in charges[:-1]} == {20}


def test_usage_counts_as_long_as_its_own_quota_remembers_also_if_mutations_are_remembered_longer() -> None:
    quotas = byte_rates(QuotaKey.PRODUCER_BYTE_RATE)
    quotas.use(TABLE)
    blindness = Blindness(0)
    blindness.heard(2, 0)
    limiters = SharedLimiters(OwnUsage("w", 1), blindness, 110_000)
    limiters.join(ID, quotas, 10)
    limiters.absorb({limiter_number(ID, Tags("a", "")): [OthersCharge(0, 10_000)]}, 12_000)
    budget = quotas.budget("a", "", 12_000)
    assert budget is not None
    assert budget.rate(12_000) == 0


def test_own_reports_are_not_charged_but_those_of_a_former_incarnation_are() -> None:
    others = OthersUsage("me", 2)
    others.sent = 4
    others.take(UsageReport("me", 1, 5, (LimiterUsage(7, 50, 50),)), 0)
    others.take(UsageReport("me", 2, 3, (LimiterUsage(7, 70, 70),)), 0)
    assert charged(others) == {7: 50}
    assert others.read_back == 3
    assert len(others.weirs(0)) == 1


def test_units_below_the_last_ones_are_ignored_and_counted() -> None:
    others = OthersUsage("me", 1)
    others.take(UsageReport("w", 1, 0, (LimiterUsage(7, 50, 50),)), 0)
    others.take(UsageReport("w", 1, 1, (LimiterUsage(7, 40, 40),)), 0)
    assert charged(others) == {7: 50}
    assert others.ignored == {"negative": 1}


def test_blind_weirs_use_their_share_then_an_equal_one_and_never_nothing() -> None:
    blindness = Blindness(0)
    assert blindness.part(None) == 0.5
    blindness.heard(4, 100)
    assert blindness.part(0.7) == 1
    blindness.look(3100)
    assert blindness.sight is Sight.BLIND
    assert blindness.part(0.7) == 0.7
    assert blindness.part(0) > 0  # a share of 0 meant unlimited elsewhere (apache/pulsar#11916)
    blindness.look(33_100)
    assert blindness.part(0.7) == pytest.approx((0.7 + 0.25) / 2)
    blindness.look(163_100)
    assert blindness.part(0.7) == 0.25
    blindness.heard(4, 163_200)
    assert blindness.part(0.7) == 1


def test_limits_apply_as_without_sharing_if_the_topic_was_never_read() -> None:
    blindness = Blindness(0)
    blindness.look(5000)
    assert blindness.sight is Sight.NEVER
    assert blindness.part(None) == 1


@pytest.mark.parametrize("heard_ms", [20, 4000, 6000])
def test_a_limiter_made_before_the_others_were_heard_gets_the_whole_limit_after_that(heard_ms: int) -> None:
    quotas = byte_rates(QuotaKey.PRODUCER_BYTE_RATE)
    quotas.use(TABLE)
    limiters, _own, blindness = shared()
    limiters.join(ID, quotas, 10)
    limiters.look(0)
    budget = quotas.budget("a", "", 0)
    assert budget is not None
    assert budget.limit == 500
    for now_ms in range(20, heard_ms, 20):
        limiters.look(now_ms)
    blindness.heard(1, heard_ms)
    for now_ms in range(heard_ms, heard_ms + 100, 20):
        limiters.look(now_ms)
    assert budget.limit == 1000


def shared(now_ms: int = 0) -> tuple[SharedLimiters, OwnUsage, Blindness]:
    own, blindness = OwnUsage("w", 1), Blindness(now_ms)
    return SharedLimiters(own, blindness, 11_000), own, blindness


def test_usage_of_a_client_not_known_here_waits_for_its_first_request() -> None:
    quotas = byte_rates(QuotaKey.PRODUCER_BYTE_RATE)
    quotas.use(TABLE)
    limiters, _own, blindness = shared()
    blindness.heard(2, 0)
    limiters.join(ID, quotas, 10)
    limiters.absorb({limiter_number(ID, Tags("a", "")): [OthersCharge(0, 10_000)]}, 0)
    budget = quotas.budget("a", "", 10)
    assert budget is not None
    assert budget.charge(1000, 10) == 990  # 11,000 bytes at 1000 bytes/s, less a window of 10.01 s
    limiters.look(20)
    assert list(limiters.usages("a", "app")) == [(ID, Tags("a", ""), 1000, 10_000)]
    assert list(limiters.usages("b", "app")) == []
    assert limiters.others_units == 10_000  # once, and not again when its client has come


def test_what_was_charged_in_advance_is_taken_off_from_reports_or_given_back_after_a_second() -> None:
    advances = Advances()
    advances.add(5, 0)
    advances.add(0, 10)
    advances.add(7, 400)
    assert advances.settle(3) == 0
    assert advances.settle(4) == 0  # 2 of the first, 2 of the second
    assert advances.expire(999) == 0
    assert advances.expire(1400) == 5
    assert advances.settle(6) == 6


def test_sudden_usage_is_charged_for_others_in_advance_and_usage_within_the_limit_is_not() -> None:
    limiters, budget, number = heard(2)
    for now_ms in range(100, 1100, 100):
        budget.charge(100, now_ms)
        limiters.look(now_ms)
        limiters.absorb({number: [OthersCharge(now_ms, 100)]}, now_ms)
    assert units(budget) == 2000
    budget.charge(2100, 1100)
    limiters.look(1100)
    assert (
        units(budget) == 4100 + 2000
    )  # others are as fast as this Weir's clients were, less 100 of the limit
    limiters.absorb({number: [OthersCharge(1200, 1500)]}, 1200)
    assert units(budget) == 4100 + 2000
    limiters.look(2100)
    assert units(budget) == 4100 + 1500


def test_equal_usage_is_expected_of_each_other_weir_that_has_used_the_limiter_within_a_minute() -> None:
    """Of a Weir that used little, too: its clients may begin at the same time as here."""
    limiters, budget, number = heard(4)
    limiters.absorb({number: [OthersCharge(0, 10, weirs=2)]}, 0)

    def expected(now_ms: int) -> float:
        limiters.look(now_ms)
        before = units(budget, now_ms)
        budget.charge(1250, now_ms)
        limiters.look(now_ms)
        return units(budget, now_ms) - before - 1250

    assert expected(250) == 2 * (1250 - 250)  # the limit allows 250 in 250 ms
    limiters.look(2000)
    assert expected(61_000) == 0


def test_other_weirs_that_use_a_limiter_are_counted() -> None:
    others = OthersUsage("me", 1)
    usage_7, usage_8 = LimiterUsage(7, 10, 10), LimiterUsage(8, 10, 10)
    for weir, usages, now_ms in (
        ("a", (usage_7,), 0),
        ("b", (usage_7, usage_8), 100),
        ("c", (usage_7,), 60_050),
    ):
        others.take(UsageReport(weir, 1, 0, usages), now_ms)
    found = {limiter: [each.weirs for each in charges] for limiter, charges in others.charges().items()}
    assert found == {7: [2, 2], 8: [1]}  # "a" was last heard more than a minute before "c"


def test_a_restarted_weir_counts_once_and_former_processes_of_this_weir_do_not_count() -> None:
    others = OthersUsage("me", 2)
    usage = LimiterUsage(7, 10, 10)
    for weir, incarnation in (("me", 1), ("b", 1), ("b", 2), ("c", 1)):
        others.take(UsageReport(weir, incarnation, 0, (usage,)), 0)
    assert others.charges()[7][-1].weirs == 2


def heard(weirs: int) -> tuple[SharedLimiters, Budget, int]:
    """The limiters of a Weir that hears this many, itself included; the limiter of user a, and its number."""
    quotas = byte_rates(QuotaKey.PRODUCER_BYTE_RATE)
    quotas.use(TABLE)
    limiters, _own, blindness = shared()
    blindness.heard(weirs, 0)
    limiters.join(ID, quotas, 10)
    budget = quotas.budget("a", "", 0)
    assert budget is not None
    return limiters, budget, limiter_number(ID, Tags("a", ""))


def units(budget: Budget, now_ms: int = 2100) -> float:
    return sum(units for _at_ms, units in budget.counting(now_ms))


def test_request_time_is_reported_in_microseconds_and_charged_in_percent() -> None:
    quotas, name = request_times(), (None, "cluster request", False)
    quotas.use(TABLE)
    limiters, own, blindness = shared()
    blindness.heard(2, 0)
    limiters.join(name, quotas, 10)
    budget = quotas.budget("a", "", 0)
    assert budget is not None
    budget.charge_api(0, 3.0, 0)
    limiters.look(20)
    ((usage,),) = [report.usages for report in own.due(20)]
    assert usage.total == 3 * US_PER_PERCENT
    limiters.absorb({usage.limiter: [OthersCharge(30, 200 * US_PER_PERCENT)]}, 30)
    assert budget.rate(30) == pytest.approx(203 / 10.03, rel=0.01)


def test_mutations_take_tokens_for_what_others_did() -> None:
    quotas, name = mutation_rates(), (None, "mutations", False)
    quotas.use(TABLE)
    limiters, _own, blindness = shared()
    blindness.heard(2, 0)
    limiters.join(name, quotas, 11)
    budget = quotas.budget("a", "", 0)
    assert budget is not None
    before = budget.tokens(0)
    limiters.absorb({limiter_number(name, Tags("a", "")): [OthersCharge(0, 60)]}, 0)
    assert before - budget.tokens(0) == 60


def test_limits_of_existing_and_new_limiters_shrink_while_blind_and_grow_again() -> None:
    quotas = byte_rates(QuotaKey.PRODUCER_BYTE_RATE)
    quotas.use(TABLE)
    limiters, _own, blindness = shared()
    limiters.join(ID, quotas, 10)
    blindness.heard(2, 0)
    budget = quotas.budget("a", "", 0)
    assert budget is not None
    assert budget.limit == 1000
    for now_ms in range(3000, 3200, 20):
        limiters.look(now_ms)
    assert budget.limit == 500
    blindness.heard(2, 3200)
    for now_ms in range(3200, 3400, 20):
        limiters.look(now_ms)
    assert budget.limit == 1000


@pytest.mark.parametrize("collects", [True, False])
def test_usage_while_no_entry_limits_a_client_is_forgotten(collects: bool) -> None:
    """Also in a worker, whose supervisor tells what own clients have used."""
    quotas = byte_rates(QuotaKey.PRODUCER_BYTE_RATE)
    quotas.use(TABLE)
    limiters, own, blindness = shared()
    if not collects:
        limiters = SharedLimiters(None, blindness, 11_000)
    blindness.heard(1, 0)
    limiters.join(ID, quotas, 10)
    budget = quotas.budget("a", "", 0)
    assert budget is not None
    for second in range(60):
        if second == 1:
            quotas.use(QuotaTable())
        if second == 40:
            quotas.use(TABLE)
        list(quotas.refresh())
        now_ms = 1000 * second
        blindness.heard(1, now_ms)
        units = 900 if second > 40 else 100_000
        budget.charge(units, now_ms)
        for _message in range(0 if collects else 2):
            limiters.note_own(ID, Tags("a", ""), units / 2, now_ms)
        limiters.look(now_ms)
    assert budget.rate(59_000) == pytest.approx(900, rel=0.2)
    assert budget.charge(20_000, 59_001) > 0
    assert own.units < 1e6, "usage without a limit is not reported"


def test_removed_limiters_are_forgotten_although_others_are_removed_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if a purge of all limiters takes longer than the time between two purges."""
    monkeypatch.setattr("weir.quotas.sharing.shared.SLICE", 1)
    quotas = byte_rates(QuotaKey.PRODUCER_BYTE_RATE)
    quotas.use(QuotaTable({(Entity(user=DEFAULT), QuotaKey.PRODUCER_BYTE_RATE): 1000}))
    limiters, _own, _blindness = shared()
    limiters.join(ID, quotas, 10)
    made = [quotas.budget(f"u{number}", "", 0) for number in range(800)]
    quotas._registry._forget([budget.tags for budget in made[700:] if budget is not None])
    for now_ms in range(0, 60_000, 20):
        limiters.look(now_ms)
        if now_ms % 5000 == 0:
            quotas._registry._forget([Tags(f"u{now_ms // 5000}", "")])
    known = {tags for _quotas, tags in limiters._limiters.values()}
    assert Tags("u699", "") in known
    assert not known & {Tags(f"u{number}", "") for number in range(700, 800)}


@pytest.mark.slow
def test_the_times_of_reports_are_kept_until_a_later_one_is_read_back_and_not_without_end() -> None:
    own = OwnUsage("w", 1)
    assert own.waits_since_ms() is None
    for now_ms in range(0, 20_000, 500):
        own.note(7, 100, 1000, 2, now_ms)
        own.due(now_ms)
    assert own.waits_since_ms() == 0
    assert own.returned([10]) == 5000  # later than the time after which it counts as lost
    assert own.waits_since_ms() == 5500
    assert own.returned([9]) is None
    for now_ms in range(20_000, 2_000_000, 500):
        own.due(now_ms)
    assert own.waits_since_ms() == 2_000_000 - 500 * (SENT_MAX + 1)
