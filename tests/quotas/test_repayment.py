"""What clients have used beyond their limit is charged again after Kafka's window has forgotten it."""

from __future__ import annotations

import pytest

from weir.quotas.client_quotas import byte_rates
from weir.quotas.sharing.blindness import Blindness
from weir.quotas.sharing.repayment import RepaymentAccount
from weir.quotas.sharing.shared import SharedLimiters
from weir.quotas.table.entities import Entity
from weir.quotas.table.options import Options, Pacing
from weir.quotas.table.quota_table import QuotaKey, QuotaTable

LIMIT = 1000.0
"""Units per second."""
WINDOW_UNITS = 10 * LIMIT
PERIOD_MS = 11_000


def repaid(account: RepaymentAccount, seconds: range, units: float) -> list[float]:
    """Use `units` in each of these seconds; return what is charged again, without the zeros."""
    due = (account.note(units, LIMIT, WINDOW_UNITS, PERIOD_MS, 1000 * second) for second in seconds)
    return [some for some in due if some]


def test_usage_within_the_limit_is_never_charged_again() -> None:
    account = RepaymentAccount(0)
    assert repaid(account, range(300), LIMIT) == []


@pytest.mark.parametrize(
    ("owed", "from_s", "until_s", "expected"),
    [  # the first client owes 2500 units before each request from the eleventh second on
        pytest.param(13_500, 11, 67, [400.0] * 5, id="for a period: in parts of 4 percent of a window"),
        pytest.param(13_500, 14, 100, [], id="by a client that waits as long as it owes: nothing"),
        pytest.param(1e9, 15, 100, [], id="beyond one and a half windows: no more than these"),
    ],
)
def test_units_that_are_owed_are_charged_again(
    owed: float, from_s: int, until_s: int, expected: list[float]
) -> None:
    account = RepaymentAccount(0)
    account.note(owed, LIMIT, WINDOW_UNITS, PERIOD_MS, 0)
    assert repaid(account, range(from_s, until_s), LIMIT) == expected


def test_a_clock_that_steps_back_pays_nothing_twice() -> None:
    account = RepaymentAccount(10_000)
    account.note(11_200, LIMIT, WINDOW_UNITS, PERIOD_MS, 10_000)
    for now_ms in (12_000, 10_000, 12_000):
        account.note(0, LIMIT, WINDOW_UNITS, PERIOD_MS, now_ms)
    assert repaid(account, range(21, 33), LIMIT) == [pytest.approx(200)]


@pytest.mark.parametrize(
    ("pacing", "is_shadow", "expected"),
    [(Pacing.KAFKA, False, 400), (Pacing.KAFKA, True, 0), (Pacing.SMOOTH, False, 0)],
)
@pytest.mark.parametrize("memory_ms", [11_000, 110_000])
def test_only_limiters_that_clients_wait_for_and_that_forget_are_repaid(
    pacing: Pacing, is_shadow: bool, expected: float, memory_ms: int
) -> None:
    """A debt of smooth pacing stays until it is paid, and a shadow's clients do not wait. The period is that
    of the quota, also if mutations are remembered longer.
    """
    entry = Entity(user="app"), QuotaKey.PRODUCER_BYTE_RATE
    values, options = {entry: LIMIT}, {entry: Options(pacing=pacing)}
    quotas = byte_rates(QuotaKey.PRODUCER_BYTE_RATE)
    quotas.use(
        QuotaTable(None, values, shadow_options=options) if is_shadow else QuotaTable(values, options=options)
    )
    side = quotas.shadow if is_shadow else quotas
    assert side is not None
    blindness = Blindness(0)
    blindness.heard(1, 0)
    limiters = SharedLimiters(None, blindness, memory_ms)
    name = (None, "cluster produce", is_shadow)
    limiters.join(name, side, 10)
    budget = side.budget("app", "", 0)
    assert budget is not None
    for second in (0, *range(11, 23)):
        limiters.note_own(name, budget.tags, LIMIT if second else 13_500, 1000 * second)
    found = budget.rate(22_000) * 10  # `note_own` itself charges nothing, so this is the repayment
    assert found == expected
