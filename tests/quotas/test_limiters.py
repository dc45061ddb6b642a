"""What all limiters have in common: `charge`, `delta`, `absorb`, and a `rate` that changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.quotas import Budget, MutationBudget, RequestBudget, Tags
from weir.quotas.connections import ConnectionBudget
from weir.quotas.limiters.limiter import Limiter
from weir.quotas.limiters.smooth import SmoothBudget

Make = Callable[[float], "Limiter"]
WHO: Final = Tags("alice", "")


def connections(limit: float) -> Limiter:
    return ConnectionBudget(WHO, limit, 0, num_samples=11, window_s=1)


MAKERS: Final[dict[str, Make]] = {
    "sampled rate": lambda limit: Budget(WHO, limit, 0),
    "smooth pacing": lambda limit: SmoothBudget(WHO, limit, 0),
    "request time": lambda limit: RequestBudget(WHO, limit, 0),
    "partition mutations": lambda limit: MutationBudget(WHO, limit, 0),
    "connections": connections,
}
each_limiter = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
charges = st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 3000)), min_size=1, max_size=30)


@each_limiter
def test_delta_tells_each_charged_unit_once(make: Make) -> None:
    limiter = make(10)
    limiter.charge(3, 0)
    limiter.charge(4, 10)
    assert limiter.delta() == 7
    assert limiter.delta() == 0
    limiter.charge(5, 20)
    assert limiter.delta() == 5


@each_limiter
def test_next_charge_waits_for_absorbed_units_too(make: Make) -> None:
    alone, told = make(10), make(10)
    told.absorb(120, 0)
    assert alone.charge(1, 5) == 0
    assert told.charge(1, 5) > 0


@each_limiter
@given(charges=charges)
def test_two_limiters_that_share_wait_like_one_that_has_all_charges(
    make: Make, charges: list[tuple[int, int]]
) -> None:
    one, first, second = make(1000), make(1000), make(1000)
    now_ms = 0
    for at, (units, pause_ms) in enumerate(charges):
        now_ms += pause_ms
        charged, other = (first, second) if at % 2 else (second, first)
        assert charged.charge(units, now_ms) == one.charge(units, now_ms)
        other.absorb(charged.delta(), now_ms)


@each_limiter
@given(charges=charges)
def test_reading_the_rate_changes_no_later_wait(make: Make, charges: list[tuple[int, int]]) -> None:
    read, unread = make(1000), make(1000)
    now_ms = 0
    for units, pause_ms in charges:
        now_ms += pause_ms
        read.rate(now_ms)
        assert read.charge(units, now_ms) == unread.charge(units, now_ms)


@pytest.mark.parametrize("kind", ["sampled rate", "request time", "partition mutations", "connections"])
def test_rate_is_above_the_limit_exactly_if_somebody_waits(kind: str) -> None:
    limiter = MAKERS[kind](100)
    for now_ms in range(0, 20_000, 250):
        waits = limiter.charge(27, now_ms) > 0
        assert (limiter.rate(now_ms) > 100) == waits
