"""Ranges of the replay for clients that were held back."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass

import pytest

from tests.quotas.demand_clients import Habits, Run, Told
from weir.quotas.replay import Replay
from weir.quotas.replay_demand import HELD_BACK, RECORDED, UNKNOWN, Outlook, RangedReplay
from weir.quotas.table.options import Pacing
from weir.quotas.table.quota_table import QuotaKey

PRODUCE, FETCH, TIME, MUTATIONS = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)
IN_FORCE = {PRODUCE: 1e5, FETCH: 1e5, TIME: 10.0, MUTATIONS: 10.0}
FLAT_OUT = Habits((20_000, 40_000), took_ms=(5, 10))
KINDS = ("flat out", "thinks", "backlog", "pipelined", "job", "seldom")


@dataclass(frozen=True)
class Case:
    """Clients, the limit under which they are recorded, and the limit of the replay."""

    key: QuotaKey
    in_force: float
    limit: float
    clients: list[Habits]
    until_ms: int
    pacing: Pacing = Pacing.KAFKA

    def run(self, limit: float, seed: int) -> Run:
        return Run(self.key, limit, self.clients, seed=seed, until_ms=self.until_ms, pacing=self.pacing)

    def replay(
        self, rows: list[Told], *, always: bool = False, in_force: float | None = None
    ) -> list[Outlook]:
        replay = RangedReplay(
            lambda kind: kind(self.key, self.limit, pacing=self.pacing),
            limit=self.limit,
            in_force=self.in_force if in_force is None else in_force,
            always=always,
            end_ms=self.until_ms,
        )
        replay.feed(*zip(*rows, strict=True))
        return replay.finish()


def drawn(seed: int) -> Case:
    """Return clients of all kinds, and a limit from 0.3 to 5 times the one in force."""
    dice = random.Random(seed)
    key = dice.choice([PRODUCE, PRODUCE, PRODUCE, FETCH, FETCH, TIME, MUTATIONS])
    pacing = Pacing.KAFKA if key in (TIME, MUTATIONS) else dice.choice([*Pacing, Pacing.KAFKA])
    factor = dice.choice([0.3, 0.5, 0.8, 0.95, 1.05, 1.2, 1.5, 2, 3, 5])
    count = dice.choice([1, 1, 2, 3, 6])
    clients = [habits(dice, key, count) for _ in range(count)]
    until_ms = dice.choice([30_000, 120_000, 300_000])
    return Case(key, IN_FORCE[key], factor * IN_FORCE[key], clients, until_ms, pacing)


def habits(dice: random.Random, key: QuotaKey, count: int) -> Habits:
    per_s = IN_FORCE[key]
    least, most = per_s * dice.uniform(0.005, 0.1), per_s * dice.uniform(0.1, 0.8)
    if key is MUTATIONS:
        least, most = max(least, 1.0), max(most, 2.0)
    took_ms = (1, dice.choice([5, 20, 100]))
    match dice.choice(KINDS):
        case "thinks":
            return Habits((least, most), took_ms, think_ms=(0, dice.choice([20, 200, 1000])))
        case "backlog":
            return Habits((least / 5, most), took_ms, per_s=per_s * dice.uniform(0.3, 4) / count)
        case "pipelined":
            return Habits((least, most), took_ms, in_flight=dice.choice([2, 5]))
        case "job":
            from_ms, work = dice.randint(0, 60_000), per_s * dice.uniform(5, 60)
            return Habits((least, most), took_ms, from_ms=from_ms, work=work)
        case "seldom":
            return Habits((least / 10, least / 5), took_ms, think_ms=(100, 2000))
    return Habits((least, most), took_ms)


@dataclass
class Found:
    case: Case
    demands: set[str]
    throttle_ms: tuple[int, int]
    throttled_ms: tuple[int, int]
    truth: Run

    @property
    def is_right(self) -> bool:
        told, lasted = self.truth.throttle_ms, self.truth.throttled_ms
        (least, most), (shortest, longest) = self.throttle_ms, self.throttled_ms
        return UNKNOWN in self.demands or (least <= told <= most and shortest <= lasted <= longest)


def compared(seed: int) -> Found | None:
    """Return the comparison for one seed; None if no client was held back in the recording."""
    case = drawn(seed)
    recorded = case.run(case.in_force, seed)
    if not recorded.throttle_ms:
        return None
    outlooks = case.replay(recorded.rows)
    told = [one.throttle_ms or (0, 0) for one in outlooks]
    lasted = [one.throttled_ms or (0, 0) for one in outlooks]
    return Found(
        case,
        {one.demand for one in outlooks},
        (sum(least for least, _most in told), sum(most for _least, most in told)),
        (sum(least for least, _most in lasted), sum(most for _least, most in lasted)),
        case.run(case.limit, seed + 10**6),
    )


@pytest.mark.slow
def test_the_throttles_of_many_simulated_clients_lie_within_the_replayed_range() -> None:
    """Prints the widths of the ranges, as a share of the time, and the number of results without a range."""
    found = {seed: one for seed in range(40, 340) if (one := compared(seed)) is not None}
    for name, wanted in (("lower", False), ("higher", True)):
        of = [one for one in found.values() if (one.case.limit > one.case.in_force) is wanted]
        known = [one for one in of if UNKNOWN not in one.demands]
        shares = [(one.throttled_ms[1] - one.throttled_ms[0]) / one.case.until_ms for one in known]
        deciles = [round(share, 2) for share in statistics.quantiles(shares, n=10)]
        print(f"{name} limits: {len(of)} cases, {len(of) - len(known)} unknown; deciles of widths {deciles}")
    wrong = [seed for seed, one in found.items() if not one.is_right]
    assert len(wrong) <= len(found) // 200, wrong


def recorded(until_ms: int = 60_000, **changes: object) -> tuple[Case, list[Told]]:
    about = {"key": PRODUCE, "in_force": 1e5, "limit": 1.5e5, "clients": [FLAT_OUT], "until_ms": until_ms}
    case = Case(**about | changes)  # type: ignore[arg-type]  # a field each
    return case, case.run(case.in_force, 1).rows


def test_a_flat_out_producer_waits_under_one_and_a_half_times_its_quota_too() -> None:
    """As recorded, it would use less than the quota, and not wait at all."""
    case, rows = recorded()
    (outlook,) = case.replay(rows)
    assert outlook.hour.throttle_ms == 0
    assert outlook.demand == HELD_BACK
    assert outlook.throttle_ms is not None
    assert outlook.throttle_ms[0] == 0
    assert outlook.throttle_ms[1] > 0.8 * 60_000


def test_a_client_without_throttles_has_the_result_of_its_recorded_requests() -> None:
    case, rows = recorded(clients=[Habits((10_000, 20_000), think_ms=(500, 900))], limit=2e4)
    (outlook,) = case.replay(rows)
    told = outlook.hour.throttle_ms, outlook.hour.throttled_ms
    assert (outlook.demand, outlook.throttle_ms, outlook.throttled_ms) == (
        RECORDED,
        (told[0], told[0]),
        (told[1], told[1]),
    )
    assert told[0] > 0


def test_a_range_under_a_lower_limit_begins_above_zero_only_if_the_budget_is_the_same() -> None:
    """Otherwise the clients may have used a part of another quota, whose size nobody knows."""
    case, rows = recorded(limit=5e4)
    (same,) = case.replay(rows)
    (other,) = case.replay(rows, in_force=1.0)
    assert same.throttle_ms is not None
    assert other.throttle_ms is not None
    assert same.throttle_ms[0] > 20_000
    assert other.throttle_ms[0] == 0


def test_a_client_near_its_quota_may_be_replayed_as_if_it_was_held_back() -> None:
    case, rows = recorded(clients=[Habits((10_000, 20_000), think_ms=(150, 160))])
    assert not any(row.recorded_ms for row in rows)
    (outlook,) = case.replay(rows, always=True)
    assert outlook.demand == HELD_BACK
    assert outlook.throttle_ms is not None
    assert outlook.throttle_ms[1] > 30_000


def test_a_client_that_is_idle_after_its_wait_is_no_longer_held_back() -> None:
    """A greedy client sends until it was idle for five seconds, not until the recording ends."""
    busy = Habits((20_000, 40_000), until_ms=20_000)
    seldom = Habits((10, 20), think_ms=(5000, 9000))
    case, rows = recorded(300_000, clients=[busy, seldom])
    (outlook,) = case.replay(rows)
    assert outlook.throttled_ms is not None
    assert outlook.throttled_ms[1] < 35_000


def test_greedy_consumers_do_not_look_each_ms_whether_their_throttle_is_over() -> None:
    """Under half of their quota, twenty consumers wait almost all of the minute: 1,200,000 ms together."""
    made: list[Replay] = []

    def make(kind: type[Replay]) -> Replay:
        made.append(kind(FETCH, 5e4))
        return made[-1]

    _case, rows = recorded(key=FETCH, clients=[FLAT_OUT] * 20)
    replay = RangedReplay(make, limit=5e4, in_force=1e5, end_ms=60_000)
    replay.feed(*zip(*rows, strict=True))
    replay.finish()
    events = sum(one._number for one in made)
    assert events < 20 * len(rows)
