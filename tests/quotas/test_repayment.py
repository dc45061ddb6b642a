"""What clients have used beyond their limit is charged again after Kafka's window has forgotten it."""

from __future__ import annotations

import pytest

from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.smooth import SmoothBudget
from weir.quotas.sharing.repayment import RepaymentAccount
from weir.quotas.table.entities import Tags

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


def test_a_window_s_units_at_once_every_eleven_seconds_are_never_charged_again() -> None:
    account = RepaymentAccount(0)
    assert repaid(account, range(0, 300, 11), WINDOW_UNITS) == []


def test_units_that_are_owed_for_a_period_are_charged_again_in_parts_of_four_percent_of_a_window() -> None:
    """The client owes 2500 units before each request from the eleventh second on."""
    account = RepaymentAccount(0)
    account.note(13_500, LIMIT, WINDOW_UNITS, PERIOD_MS, 0)
    assert repaid(account, range(11, 67), LIMIT) == [400.0] * 5


def test_a_client_that_waits_as_long_as_it_owes_is_charged_nothing_again() -> None:
    account = RepaymentAccount(0)
    account.note(13_500, LIMIT, WINDOW_UNITS, PERIOD_MS, 0)
    assert repaid(account, range(14, 100), LIMIT) == []


def test_a_small_rest_is_charged_again_as_a_whole() -> None:
    account = RepaymentAccount(0)
    account.note(11_100, LIMIT, WINDOW_UNITS, PERIOD_MS, 0)
    assert repaid(account, range(11, 23), LIMIT) == [pytest.approx(100)]


def test_no_more_than_one_and_a_half_windows_can_be_owed() -> None:
    account = RepaymentAccount(0)
    account.note(1e9, LIMIT, WINDOW_UNITS, PERIOD_MS, 0)
    assert repaid(account, range(15, 100), LIMIT) == []


def test_units_that_are_given_back_are_not_owed() -> None:
    account = RepaymentAccount(0)
    account.note(14_000, LIMIT, WINDOW_UNITS, PERIOD_MS, 0)
    account.note(-4_000, LIMIT, WINDOW_UNITS, PERIOD_MS, 0)
    assert repaid(account, range(11, 67), LIMIT) == []


def test_a_clock_that_steps_back_pays_nothing_twice() -> None:
    account = RepaymentAccount(10_000)
    account.note(12_000, LIMIT, WINDOW_UNITS, PERIOD_MS, 10_000)
    for now_ms in (12_000, 10_000, 12_000):
        account.note(0, LIMIT, WINDOW_UNITS, PERIOD_MS, now_ms)
    assert repaid(account, range(21, 33), LIMIT) == [400.0]


@pytest.mark.parametrize(
    ("kind", "is_shadow", "forgets"),
    [(Budget, False, True), (Budget, True, False), (SmoothBudget, False, False)],
)
def test_only_a_limiter_that_clients_wait_for_and_that_forgets_is_repaid(
    kind: type[Budget], is_shadow: bool, forgets: bool
) -> None:
    """A debt of smooth pacing stays until it is paid; a shadow's clients do not wait."""
    assert kind(Tags("app", ""), LIMIT, 0, is_shadow=is_shadow).forgets_excess is forgets
