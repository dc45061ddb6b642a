"""Budgets: who shares them, what a change of the table does to them, and how they are forgotten."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.changes import put_in_force
from tests.quotas.vectors import THROTTLE, Flow, FlowStep, entity, table
from weir.quotas import (
    DEFAULT,
    BrokerQuotas,
    Budget,
    ClientQuotas,
    Entity,
    QuotaKey,
    QuotaTable,
    RequestBudget,
    Tags,
)
from weir.quotas.client_quotas import byte_rates, request_times
from weir.quotas.limiters.budgets import UNLIMITED
from weir.quotas.limiters.rate import Rate
from weir.quotas.limiters.smooth import SmoothBudget
from weir.quotas.limiters.throttle import INT32_MAX, throttle_ms
from weir.quotas.registry import IDLE_MS_MAX, SLICE
from weir.quotas.table.names import sanitize

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
METADATA = 3
KEYS = {"Produce": PRODUCE, "Fetch": FETCH, "Request": QuotaKey.REQUEST_PERCENTAGE}
ALICE, APP, ANY_APP = Entity("alice"), Entity(client_id="app"), Entity(client_id=DEFAULT)


def limited(*quotas: tuple[Entity, float], key: QuotaKey = PRODUCE) -> QuotaTable:
    return QuotaTable({(whom, key): value for whom, value in quotas})


def client_quotas(*quotas: tuple[Entity, float]) -> ClientQuotas[Budget]:
    made = byte_rates(PRODUCE)
    put_in_force(made, limited(*quotas))
    return made


def budget_of(
    quotas: ClientQuotas[Budget], user: str = "alice", client_id: str = "app", now_ms: int = 0
) -> Budget:
    budget = quotas.budget(user, client_id, now_ms)
    assert budget is not None
    return budget


def test_a_request_told_the_rest_of_a_throttle_time_is_counted_and_not_charged() -> None:
    """12,000 bytes at 1000 bytes/s are worth 12 s, of which 10 have passed."""
    budget = Budget(Tags("", "app"), 1000.0, 0)
    assert budget.charge(12_000, 0) == 2000
    assert [budget.tell_rest(now_ms) for now_ms in (500, 1999, 2000, 3000)] == [1500, 1, 0, 0]
    assert (budget.charged, budget.throttled, budget.throttle_ms_total) == (12_000, 3, 3501)
    assert (budget.charged_ms, budget.throttled_until_ms) == (0, 2000)


# Kafka's manager


@pytest.mark.parametrize("flow", THROTTLE.flows, ids=lambda flow: f"{flow.id} {flow.quota_type}")
def test_budgets_return_the_throttle_times_of_kafkas_clientquotamanager(flow: Flow) -> None:
    key = KEYS[flow.quota_type]
    make = request_times if key is QuotaKey.REQUEST_PERCENTAGE else partial(byte_rates, key)
    quotas: ClientQuotas[Budget] = make(flow.num_samples, flow.window_s)
    configured = table(flow.quotas, key)
    put_in_force(quotas, configured)
    for step in flow.steps:
        if step.op == "set_quota":
            configured = configured.altered({(entity(step.entity), key): step.value})
            put_in_force(quotas, configured)
        else:
            check_record(quotas, step, flow.t0_ms + step.t)


def check_record(quotas: ClientQuotas[Budget], step: FlowStep, now_ms: int) -> None:
    budget = quotas.budget(step.user, step.client_id, now_ms)
    if step.limit is None:
        assert budget is None
        assert step.throttle_ms == 0
        return
    assert budget is not None
    assert budget.limit == step.limit
    assert {"user": sanitize(budget.tags.user), "client-id": budget.tags.client_id} == step.tags
    if isinstance(budget, RequestBudget):
        assert budget.charge_api(METADATA, step.v, now_ms) == step.throttle_ms
    else:
        assert budget.charge(step.v, now_ms) == step.throttle_ms


def test_all_flows_of_kafkas_clientquotamanager_are_tested() -> None:
    assert len(THROTTLE.flows) == 15
    assert sum(step.throttle_ms > 0 for flow in THROTTLE.flows for step in flow.steps) == 86


# Charging


@given(
    st.floats(1, 1e6),
    st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 10**7)), min_size=1, max_size=60),
)
def test_a_charge_is_a_record_and_a_check(limit: float, story: list[tuple[int, int]]) -> None:
    budget = Budget(Tags("alice", ""), limit, 0)
    rate = Rate()
    now_ms, waits_ms = 0, []
    for gap_ms, value in story:
        now_ms += gap_ms
        rate.record(value, now_ms)
        waits_ms.append(throttle_ms(rate.measure(now_ms), limit, rate.window_ms(now_ms)))
        assert budget.charge(value, now_ms) == waits_ms[-1]
        assert budget.rate(now_ms) == rate.measure(now_ms)
    assert budget.charged == sum(value for _, value in story)
    assert budget.throttled == sum(wait_ms > 0 for wait_ms in waits_ms)
    assert budget.throttle_ms_total == sum(waits_ms)


# Changes


def test_a_changed_limit_applies_at_the_next_charge_and_keeps_the_usage() -> None:
    quotas = client_quotas((ALICE, 1000.0))
    budget = budget_of(quotas)
    generation = quotas.generation
    assert budget.charge(10_000, 0) == 0
    put_in_force(quotas, limited((ALICE, 500.0)))
    assert (budget.limit, budget.fetch_max_bytes) == (500.0, 5000)
    assert budget.charge(0, 0) == 10_000
    assert budget_of(quotas) is budget
    assert quotas.generation > generation  # what was decided with the old cap of fetches is decided anew
    generation = quotas.generation
    put_in_force(quotas, limited((ALICE, 500.0)))
    assert quotas.generation == generation  # nothing has changed


@pytest.mark.parametrize(
    ("kind", "told_ms", "then_ms"), [(Budget, 90_000, 10_000), (SmoothBudget, 99_900, 19_980)]
)
def test_a_release_ends_a_throttle_at_the_time_that_the_present_limit_gives(
    kind: type[Budget], told_ms: int, then_ms: int
) -> None:
    """100,000 bytes are 10,000 bytes/s for 10 s; or, with smooth pacing, a debt, less the credit of 0.1 s."""
    budget = kind(Tags("", "app"), 1000.0, 0)
    assert budget.charge(100_000, 0) == budget.release(0) == told_ms
    budget.set_limit(5000.0)
    assert budget.release(0) == then_ms
    assert budget.release(60_000) == budget.throttled_until_ms == then_ms


def test_a_quota_at_another_level_starts_a_new_budget_and_keeps_the_old_one() -> None:
    quotas = client_quotas((APP, 1000.0))
    old = budget_of(quotas)
    old.charge(10_000, 0)
    generation = quotas.generation
    put_in_force(quotas, limited((APP, 1000.0), (ALICE, 1000.0)))
    assert quotas.generation > generation
    new = budget_of(quotas, now_ms=1)
    assert new is not old
    assert new.charge(10_000, 1) == 0
    put_in_force(quotas, limited((APP, 1000.0)))
    assert budget_of(quotas, now_ms=2) is old
    assert old.charge(1000, 2) > 0


def test_a_removed_limit_ends_the_throttle_of_its_clients() -> None:
    quotas = client_quotas((ALICE, 1000.0))
    budget = budget_of(quotas)
    assert budget.charge(20_000, 0) == 10_000
    generation = quotas.generation
    put_in_force(quotas, QuotaTable())
    assert quotas.generation > generation
    assert quotas.budget("alice", "app", 1) is None
    assert (budget.limit, budget.fetch_max_bytes) == (UNLIMITED, INT32_MAX)
    assert budget.charge(10**9, 1) == 0  # a response still under way when the limit went


configured_quotas = st.dictionaries(
    st.sampled_from([ALICE, APP, ANY_APP, Entity(DEFAULT), Entity("alice", DEFAULT), Entity(DEFAULT, "app")]),
    st.integers(1, 9).map(float),
)
actions = st.one_of(
    st.tuples(st.just("update"), configured_quotas),
    st.tuples(st.just("wait"), st.sampled_from([1000, 1_000_000, IDLE_MS_MAX])),
)


@given(st.lists(actions, max_size=20))
def test_a_connection_that_checks_the_generation_always_has_its_current_budget(
    story: list[tuple[str, dict[Entity, float] | int]],
) -> None:
    quotas = BrokerQuotas.create(QuotaTable())
    now_ms, generation = 0, -1
    held: Budget | None = None
    for _, what in story:
        if isinstance(what, int):
            now_ms += what
            sum(quotas.expire(now_ms))
        else:
            put_in_force(quotas, limited(*what.items()))
        if generation != quotas.generation:
            generation, held = quotas.generation, quotas.produce.budget("alice", "app", now_ms)
        found = quotas.produce.budget("alice", "app", now_ms)
        assert found is held
        if held is not None and now_ms % 3 == 0:
            held.charge(1, now_ms)


# Forgetting


def test_a_budget_is_forgotten_after_an_hour_without_a_charge() -> None:
    quotas = BrokerQuotas.create(limited((ANY_APP, 1000.0)))
    idle, used = budget_of(quotas.produce, "u", "idle"), budget_of(quotas.produce, "u", "used")
    used.charge(1, 1)
    generation = quotas.generation
    assert sum(quotas.expire(IDLE_MS_MAX - 1)) == 0
    assert quotas.generation == generation
    assert sum(quotas.expire(IDLE_MS_MAX)) == 1
    assert quotas.generation > generation
    assert budget_of(quotas.produce, "u", "used") is used
    assert budget_of(quotas.produce, "u", "idle", IDLE_MS_MAX) is not idle


class Seen:
    """A limiter that counts how often anybody looks whether it is idle."""

    looks = 0

    def __init__(self, tags: Tags, limit: float, now_ms: int) -> None:
        self.tags = tags
        self.limit = limit
        self.charged = 0.0
        self.throttled = 0
        self.throttle_ms_total = 0
        self._charged_ms = now_ms

    @property
    def charged_ms(self) -> int:
        Seen.looks += 1
        return self._charged_ms

    @charged_ms.setter
    def charged_ms(self, now_ms: int) -> None:
        self._charged_ms = now_ms

    def set_limit(self, limit: float) -> None:
        self.limit = limit

    def charge(self, units: float, now_ms: int) -> int:
        del units, now_ms
        return 0

    def watch(self, note: Callable[[Tags], None]) -> None:
        note(self.tags)

    def delta(self) -> float:
        return 0.0

    def absorb(self, units: float, now_ms: int) -> None:
        del units, now_ms

    def rate(self, now_ms: int) -> float:
        del now_ms
        return 0.0

    def is_idle(self, now_ms: int) -> bool:
        return self.charged_ms < now_ms


@pytest.mark.parametrize(("now_ms", "kept"), [(IDLE_MS_MAX, 0), (IDLE_MS_MAX - 1, 10 * SLICE)])
def test_no_step_of_an_expiry_looks_at_many_budgets(now_ms: int, kept: int) -> None:
    quotas = ClientQuotas(PRODUCE, Seen)
    put_in_force(quotas, limited((ANY_APP, 1.0)))
    for number in range(10 * SLICE):
        quotas.budget("u", f"app-{number}", 0)
    Seen.looks, left, steps = 0, [], 0
    for steps, _forgotten in enumerate(quotas.expire(now_ms), start=1):  # noqa: B007  # used below
        assert Seen.looks <= 4 * SLICE
        Seen.looks = 0
        left.append(len(quotas))
    assert steps == 10
    assert left == ([10 * SLICE] * 10 if kept else list(range(9 * SLICE, -1, -SLICE)))


apps = st.sampled_from([f"app-{number}" for number in range(9)])


@given(st.dictionaries(apps, st.sampled_from([0, 10, 20])), st.lists(apps, max_size=9))
def test_budgets_used_between_the_steps_of_an_expiry_are_kept_and_idle_ones_forgotten(
    charged_ms: dict[str, int], between: list[str]
) -> None:
    quotas = BrokerQuotas.create(limited((ANY_APP, 1000.0)))
    now_ms, last_ms = 10 + IDLE_MS_MAX, 10
    for app, at_ms in charged_ms.items():
        budget_of(quotas.produce, "u", app, at_ms).charge(1, at_ms)
    before = {budget.tags.client_id: budget for budget in quotas.produce}
    held: dict[str, Budget] = {}
    generation, forgotten = -1, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weir.quotas.registry.SLICE", 2)
        steps = quotas.expire(now_ms)
        for app in between:
            forgotten += next(steps, 0)
            if generation != quotas.generation:
                generation, held = quotas.generation, {}
            if app in held:
                assert budget_of(quotas.produce, "u", app, now_ms) is held[app]
            held[app] = budget_of(quotas.produce, "u", app, now_ms)
            held[app].charge(1, now_ms)
        forgotten += sum(steps)
    after = {budget.tags.client_id: budget for budget in quotas.produce}
    assert after.keys() == {app for app, at_ms in charged_ms.items() if at_ms > last_ms} | set(between)
    assert all(after[app] is before[app] for app, at_ms in charged_ms.items() if at_ms > last_ms)
    assert forgotten == len(before) - sum(after.get(app) is budget for app, budget in before.items())
    assert sum(quotas.expire(now_ms)) == 0
