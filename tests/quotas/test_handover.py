"""What a process takes over of another one's quotas: the same throttle times follow as without a change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weir.proxy.control.quota_registry import QuotaRegistry
from weir.quotas import QuotaTable, parse

TABLE = parse("""
[[quota]]
user = "<default>"
client_id = "<default>"
producer_byte_rate = 1000
consumer_byte_rate = 1000
request_percentage = 20
controller_mutation_rate = 5

[[quota]]
user = "even"
client_id = "<default>"
producer_byte_rate = 1000
pacing = "smooth"

[[quota]]
user = "shared"
client_id = "<default>"
producer_byte_rate = 1000
scope = "cluster"

[[quota]]
user = "trial"
client_id = "<default>"
producer_byte_rate = 1000
mode = "shadow"
""")
LATER_MS = 5_000_000
"""The clock of the process that takes over, when that of the other shows 0."""

Steps = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 30_000)), min_size=1, max_size=15)
"""(Time in ms since the previous charge, units) of each charge. No request has 0 bytes, so none is charged 0
units: such a charge would begin a window, and would not be handed over.
"""


def passed_on(old: QuotaRegistry, now_ms: int, table: QuotaTable = TABLE) -> QuotaRegistry:
    new = QuotaRegistry(table)
    new.absorb([each for each in old.used(now_ms) if each is not None], now_ms + LATER_MS)
    return new


@given(Steps, Steps, st.sampled_from(["someone", "shared", "trial"]))
@example(  # a sample that was emptied at 11,000 is older than the last charge of the current one, at 11,098
    before=[
        (0, 1),
        *[(1000, 1), (24, 1), (1705, 1), (2616, 1), (2847, 1), (189, 1)],
        *[(2340, 235), (279, 602), (96, 7761), (2, 1)],
    ],
    after=[(623, 255), (509, 1496), (770, 1), (3000, 1), (3000, 927), (3000, 1)],
    user="someone",
)
def test_byte_rates_throttle_after_a_handover_as_without_one(
    before: list[tuple[int, int]], after: list[tuple[int, int]], user: str
) -> None:
    old, now_ms = QuotaRegistry(TABLE), 0
    for wait_ms, units in before:
        now_ms += wait_ms
        old.of(1).ledger(user, "c", now_ms).charge_produce(units, now_ms)
    new = passed_on(old, now_ms)
    for wait_ms, units in after:
        now_ms += wait_ms
        expected = old.of(1).ledger(user, "c", now_ms).charge_produce(units, now_ms)
        later_ms = now_ms + LATER_MS
        assert new.of(1).ledger(user, "c", later_ms).charge_produce(units, later_ms) == expected


def charge_smooth(registry: QuotaRegistry, units: int, now_ms: int) -> int:
    return registry.of(1).ledger("even", "c", now_ms).charge_produce(units, now_ms)


def charge_request_time(registry: QuotaRegistry, units: int, now_ms: int) -> int:
    return registry.of(1).ledger("someone", "c", now_ms).charge_request(3, 100 * units, now_ms)


@pytest.mark.parametrize("charge", [charge_smooth, charge_request_time])
@given(Steps, st.integers(0, 3000), st.integers(0, 30_000))
def test_smooth_rates_and_request_time_throttle_after_a_handover_as_without_one(
    charge: Callable[[QuotaRegistry, int, int], int], before: list[tuple[int, int]], wait_ms: int, units: int
) -> None:
    old, now_ms = QuotaRegistry(TABLE), 0
    for waited_ms, charged in before:
        now_ms += waited_ms
        charge(old, charged, now_ms)
    new = passed_on(old, now_ms)
    now_ms += wait_ms
    found = charge(new, units, now_ms + LATER_MS)
    assert abs(found - charge(old, units, now_ms)) <= 1, "sums of floats in another order"


@pytest.mark.parametrize("charged", [1, 50, 55, 600])
def test_mutation_tokens_are_not_given_again(charged: int) -> None:
    old = QuotaRegistry(TABLE)
    budget = old.mutations.budget("someone", "c", 0)
    assert budget is not None
    budget.charge(charged, 0)
    new = passed_on(old, 2000).mutations.budget("someone", "c", 2000 + LATER_MS)
    assert new is not None
    assert new.tokens(2000 + LATER_MS) == pytest.approx(min(55 - charged + 10, 55))


def test_a_told_throttle_lasts_after_a_handover() -> None:
    old = QuotaRegistry(TABLE)
    wait_ms = old.of(1).ledger("someone", "c", 0).charge_produce(20_000, 0)
    assert wait_ms > 1000
    (budget,) = passed_on(old, 1000).of(1).produce
    assert budget.throttled_until_ms == LATER_MS + wait_ms


def test_the_usage_of_one_broker_is_not_that_of_another() -> None:
    old = QuotaRegistry(TABLE)
    old.of(1).ledger("someone", "c", 0).charge_produce(20_000, 0)
    new = passed_on(old, 0)
    assert new.of(2).ledger("someone", "c", LATER_MS).charge_produce(1, LATER_MS) == 0
    assert new.of(1).ledger("someone", "c", LATER_MS).charge_produce(1, LATER_MS) > 0
