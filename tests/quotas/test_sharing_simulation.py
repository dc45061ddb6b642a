"""Several simulated Weirs keep one limit together, within the bounds in docs/background/sharing.md."""

from __future__ import annotations

import os

import pytest

from tests.matrix import first_core
from tests.quotas.sharing_world import (
    LIMIT,
    SIZE,
    WINDOW_S,
    Conditions,
    bound,
    excess,
    greedy_rate,
    rate,
    steady_rate,
    world,
)
from weir.quotas.sharing.blindness import Sight

DELAYS_MS = (20, 100, 500, 2000)
SEEDS = int(os.environ.get("SEEDS", "5"))
"""Number of seeds of each slow case of greedy clients; `SEEDS=100` in the environment for more."""


@pytest.mark.parametrize(
    ("weirs", "demand"),
    first_core([(3, 3), *((weirs, demand) for weirs in range(2, 9) for demand in (2, 3, 10))]),
)
def test_the_first_window_exceeds_the_limit_by_at_most_the_derived_bound(weirs: int, demand: int) -> None:
    for delay_ms in DELAYS_MS:
        found = excess(weirs, demand, SIZE, Conditions(delay_ms))
        assert found <= bound(weirs, demand, delay_ms), f"{delay_ms} ms: {found:.4f}"


@pytest.mark.parametrize(
    ("weirs", "delay_ms", "tolerance"),
    first_core(
        [
            (2, 20, 0.05),
            (3, 500, 0.05),
            *((weirs, 2000, 0.1) for weirs in (2, 3)),
            *((weirs, delay_ms, 0.05) for weirs in (2, 3) for delay_ms in (20, 100, 500)),
            *((8, *each) for each in [(20, 0.05), (100, 0.05), (500, 0.1)]),
        ],
        3,
    ),
)
def test_over_a_minute_clients_get_the_limit(weirs: int, delay_ms: int, tolerance: float) -> None:
    made = world(weirs, Conditions(delay_ms), seed=delay_ms)
    began_ms = made.now_ms
    for weir in made.weirs:
        made.client(weir, 3 * LIMIT / weirs, SIZE, connections=2)
    made.run(began_ms + 80_000)
    assert rate(made, began_ms + 20_000, began_ms + 80_000) == pytest.approx(1, abs=tolerance)


@pytest.mark.parametrize(
    ("weirs", "connections", "seeds"),
    first_core([(3, 2, 1), *((weirs, count, SEEDS) for weirs in (2, 3) for count in (1, 2, 10))]),
)
def test_over_a_minute_greedy_connections_at_each_weir_get_the_limit(
    weirs: int, connections: int, seeds: int
) -> None:
    """All wait for the same limit, so they begin again at all Weirs at the same time."""
    for delay_ms, shortest, tolerance in (
        (20, 0.5, 0.05),
        (100, 0.5, 0.05),
        (300, 0.5, 0.07),
        (300, 0, 0.07),
    ):
        found = [
            greedy_rate(weirs, connections, Conditions(delay_ms, shortest=shortest), seed)
            for seed in range(1, seeds + 1)
        ]
        assert found == pytest.approx([1.0] * seeds, abs=tolerance), f"{delay_ms} ms"


def test_thirty_greedy_connections_at_one_weir_that_shares_its_usage_get_the_limit() -> None:
    """Without repayment they would get 1.048 of it, by Kafka's rule."""
    assert greedy_rate(1, 30, Conditions()) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("seed", first_core(range(1, SEEDS + 1)))
def test_a_greedy_client_at_one_weir_gets_what_a_slow_one_at_another_leaves(seed: int) -> None:
    """Although the first Weir expects that the second one's clients use as much as its own."""
    made = world(3, Conditions(), seed)
    for weir, demand in zip(made.weirs, (25, 0.2), strict=False):
        made.client(weir, demand * LIMIT, SIZE)
    assert steady_rate(made) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("weirs", "share"), first_core([(2, 0.9), (4, 0.8), (10, 0.8)], 2))
def test_a_trickle_at_other_weirs_throttles_no_client_within_the_limit(weirs: int, share: float) -> None:
    """A client sends all of a second at once; the clients of the others send a few bytes."""
    made = world(weirs, Conditions(), seed=1)
    for weir in made.weirs[1:]:
        made.client(weir, 10, 10)
    made.client(made.weirs[0], share * LIMIT, share * LIMIT)
    began_ms = made.now_ms
    made.run(began_ms + 120_000)
    assert rate(made, began_ms + 20_000, began_ms + 100_000) == pytest.approx(share, rel=0.03)


@pytest.mark.parametrize("turn_ms", [300, 3000])
def test_a_client_below_the_limit_that_changes_between_weirs_is_not_throttled(turn_ms: int) -> None:
    made = world(3, Conditions(60), seed=1)
    began_ms = made.now_ms
    throttled = 0
    for number in range(4000):
        now_ms = began_ms + 10 * number
        made.run(now_ms)
        weir = made.weirs[(now_ms - began_ms) // turn_ms % 3]
        throttled += weir.charge(0.0095 * LIMIT, now_ms) > 0
    assert throttled == 0


def test_a_client_below_the_limit_that_moves_to_another_weir_for_good_is_not_throttled() -> None:
    """The new Weir has known its usage for ten seconds, but had no limiter for it."""
    made = world(2, Conditions(60), seed=1)
    began_ms = made.now_ms
    throttled = 0
    for now_ms in range(began_ms, began_ms + 150_000, 10):
        made.run(now_ms)
        weir = made.weirs[now_ms >= began_ms + 30_000]
        throttled += weir.charge(0.0097 * LIMIT, now_ms) > 0
    assert throttled == 0


@pytest.mark.parametrize(
    ("silent_ms", "share"),
    first_core([(9000, 0.97), *((ms, share) for ms in (2500, 9000, 60_000) for share in (0.5, 0.9, 0.97))]),
)
def test_clients_below_the_limit_repay_nothing_after_a_weir_was_not_heard(
    silent_ms: int, share: float
) -> None:
    """It has heard the other one meanwhile, and after three seconds used a part of the limit."""
    made = world(2, Conditions(60), seed=1)
    began_ms = made.now_ms
    throttled = 0
    for now_ms in range(began_ms, began_ms + 200_000, 10):
        made.run(now_ms)
        if now_ms == began_ms + 20_000:
            made.weirs[0].loses_until_ms = now_ms + silent_ms
        for weir, part in zip(made.weirs, (share, 1 - share), strict=True):
            waits = weir.charge(0.0097 * part * LIMIT, now_ms) > 0
            throttled += waits and now_ms > began_ms + 35_000 + silent_ms
    assert throttled == 0


@pytest.mark.parametrize("seed", first_core(range(5)))
def test_lost_and_doubled_reports_change_the_rate_by_less_than_five_percent(seed: int) -> None:
    made = world(3, Conditions(100, lost=0.3, doubled=0.3), seed)
    began_ms = made.now_ms
    for weir in made.weirs:
        made.client(weir, LIMIT, SIZE, connections=3)
    made.run(began_ms + 80_000)
    assert rate(made, began_ms + 20_000, began_ms + 80_000) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("closed", [True, False])
def test_usage_of_a_weir_that_cannot_report_for_a_second_and_is_muted_then_is_charged_at_the_others(
    seed: int, closed: bool
) -> None:
    """closed: the topic refuses its reports; else they are lost on the way. Its clients wait after that, so
    no further usage makes up for the lost reports.
    """
    made = world(2, Conditions(), seed)
    muted, other = made.weirs
    began_ms = made.now_ms
    if closed:
        muted.opens_ms = began_ms + 1000
    else:
        muted.loses_until_ms = began_ms + 1000
    for number in range(5):
        made.run(began_ms + 100 * number)
        muted.charge(WINDOW_S * LIMIT / 4, made.now_ms)
    made.run(began_ms + 6000)
    assert other.shared.others_units == 5 / 4 * WINDOW_S * LIMIT
    assert other.charge(2 * LIMIT, made.now_ms) > 0


@pytest.mark.parametrize("seed", first_core(range(1, 4)))
def test_a_killed_weir_leaves_the_limit_to_the_others(seed: int) -> None:
    after_kill, without = rates_after_20_s(seed, killed=True), rates_after_20_s(seed, killed=False)
    # Kafka's formula admits up to eleven seconds' worth in ten seconds: compare with a run without the kill.
    assert after_kill[0] <= without[0] + bound(2, 4, 100)
    # A client that asks for more uses up a window at once, which counts for eleven seconds.
    assert 10 / 11 <= after_kill[1] <= 1.05


def rates_after_20_s(seed: int, *, killed: bool) -> tuple[float, float]:
    """Return the rates of the ten seconds after the first 20 s, and of the minute after that. `killed`: True
    if one of two Weirs dies after 20 s.
    """
    made = world(2, Conditions(), seed)
    began_ms = made.now_ms
    for weir in made.weirs:
        made.client(weir, 2 * LIMIT, SIZE)
    made.run(began_ms + 20_000)
    made.weirs[0].alive = not killed
    made.run(began_ms + 90_000)
    return rate(made, began_ms + 20_000, began_ms + 30_000), rate(made, began_ms + 30_000, began_ms + 90_000)


def test_a_weir_that_restarts_does_not_give_its_clients_a_second_window() -> None:
    made = world(1, Conditions(), seed=1)
    began_ms = made.now_ms
    made.client(made.weirs[0], 3 * LIMIT, SIZE)
    made.run(began_ms + 5_000)
    old = made.weirs[0]
    old.alive = False
    new = made.start(old.name, incarnation=2)
    for report in made.sent[-40:]:
        new.others.take(report, made.now_ms, made.now_ms - 1000)
    new.shared.absorb(new.others.charges(), made.now_ms)
    made.client(new, 3 * LIMIT, SIZE)
    made.run(began_ms + 10_000)
    assert sum(size for _at_ms, size in made.used) <= 1.15 * WINDOW_S * LIMIT


def test_weirs_that_are_all_blind_use_the_limit_together() -> None:
    made = world(3, Conditions(), seed=2)
    began_ms = made.now_ms
    for weir, demand in zip(made.weirs, (3, 1, 0.2), strict=True):
        made.client(weir, demand * LIMIT, SIZE)
    made.run(began_ms + 30_000)
    for weir in made.weirs:
        weir.cut_off = True
    made.run(began_ms + 120_000)
    assert rate(made, began_ms + 45_000, began_ms + 120_000) <= 1.05
    assert {weir.blindness.sight for weir in made.weirs} == {Sight.BLIND}


def test_a_stopped_weir_repays_after_it_goes_on() -> None:
    made = world(2, Conditions(), seed=3)
    began_ms = made.now_ms
    for weir in made.weirs:
        made.client(weir, 2 * LIMIT, SIZE)
    made.run(began_ms + 20_000)
    made.weirs[0].paused_until_ms = made.now_ms + 30_000
    made.run(began_ms + 130_000)
    assert rate(made, began_ms + 20_000, began_ms + 50_000) <= 1.05
    assert rate(made, began_ms + 70_000, began_ms + 130_000) == pytest.approx(1, abs=0.05)
