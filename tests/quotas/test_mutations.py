"""Mutation budgets: Kafka's numbers, and what one request makes of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.changes import put_in_force
from tests.quotas.vectors import BUCKET, BucketCase, BucketStep
from weir.quotas import (
    DEFAULT,
    BrokerQuotas,
    ClientQuotas,
    Entity,
    MutationBudget,
    MutationCharge,
    QuotaKey,
    QuotaTable,
    Tags,
)
from weir.quotas.client_quotas import mutation_rates
from weir.quotas.limiters.bucket import TokenBucket
from weir.quotas.registry import IDLE_MS_MAX, ROOM_PAUSE_MS
from weir.quotas.table.bounded_names import OVERFLOW
from weir.quotas.table.options import Pacing

MUTATIONS = QuotaKey.CONTROLLER_MUTATION_RATE
ALICE = Tags("alice", "")
ANY_APP = Entity(client_id=DEFAULT)


def budget_of(limit: float = 2.0, now_ms: int = 0, num_samples: int = 11) -> MutationBudget:
    return MutationBudget(ALICE, limit, now_ms, num_samples=num_samples)


def admitted(charge: MutationCharge, costs: list[int], now_ms: int = 0) -> list[bool]:
    return [charge.admit(cost, now_ms) for cost in costs]


# Kafka's numbers


@pytest.mark.parametrize("case", BUCKET, ids=lambda case: f"{case.id}: {case.note}")
def test_mutation_budgets_match_kafkas_token_bucket_exactly(case: BucketCase) -> None:
    window_s, rest_ms = divmod(case.window_ms, 1000)
    assert rest_ms == 0
    assert case.quota is not None
    budget = MutationBudget(ALICE, case.quota, 0, num_samples=case.num_samples, window_s=window_s, tokens=0.0)
    for step in case.steps:
        if step.op == "set_quota":
            budget.set_limit(math.inf if step.v is None else step.v)
        elif step.op == "request":
            check_request(budget, step, case.t0_ms)
        else:
            check_step(budget, step, case.t0_ms + step.t)


def check_step(budget: MutationBudget, step: BucketStep, now_ms: int) -> None:
    if step.op != "measure":
        assert step.v is not None
        if step.op == "strict":
            assert budget.would_refuse([int(step.v)], now_ms) is not step.accepted
        charge = budget.begin(strict=step.op == "strict")
        assert charge.admit(step.v, now_ms) is step.accepted
        assert charge.throttle_ms(now_ms) == step.throttle_ms
        assert charge.finish(now_ms) == step.throttle_ms
    check_tokens(budget, step.tokens, now_ms)


def check_request(budget: MutationBudget, step: BucketStep, t0_ms: int) -> None:
    charge = budget.begin(strict=step.kind == "strict")
    for topic in step.topics:
        now_ms = t0_ms + topic.t
        assert charge.admit(topic.v, now_ms) is topic.accepted
        assert topic.error_code == (0 if topic.accepted else 89)
        if topic.exception_throttle_ms is not None:
            assert charge.throttle_ms(now_ms) == topic.exception_throttle_ms
    respond_ms = t0_ms + step.respond_t
    assert charge.finish(respond_ms) == step.response_throttle_ms
    check_tokens(budget, step.tokens, respond_ms)


def check_tokens(budget: MutationBudget, expected: float, now_ms: int) -> None:
    assert budget.tokens(now_ms) == (math.inf if budget.limit == math.inf else expected)
    assert budget._bucket.tokens(now_ms) == expected


def test_all_token_bucket_vectors_of_kafka_are_tested() -> None:
    assert len(BUCKET) == 34


@given(st.floats(0.01, 1000), st.integers(1, 10_000))
def test_a_client_that_waits_its_throttle_time_is_admitted_within_a_ms(limit: float, cost: int) -> None:
    budget = MutationBudget(ALICE, limit, 0, tokens=0.0)
    refused = budget.begin(strict=True)
    assert admitted(refused, [cost, 1]) == [True, False]
    assert budget.begin(strict=True).admit(1, refused.throttle_ms(0) + 1)


# Refunds

costs = st.lists(st.integers(1, 50), max_size=12)
whole_seconds = st.integers(0, 30).map(lambda seconds: 1000 * seconds)
"""With whole quotas every balance is exact."""


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(1, 50), st.booleans()), max_size=12), whole_seconds)
def test_a_refunded_mutation_leaves_the_balance_of_one_never_charged(
    limit: int, topics: list[tuple[int, bool]], now_ms: int
) -> None:
    """Permissive, so that the same topics are admitted; from zero, so that no balance is capped."""
    both, some = (MutationBudget(ALICE, limit, 0, tokens=0.0, num_samples=1000) for _ in range(2))
    charge, expected = both.begin(strict=False), some.begin(strict=False)
    for cost, _ in topics:
        charge.admit(cost, now_ms)
    for cost, stays in topics:
        if stays:
            expected.admit(cost, now_ms)
        else:
            charge.refund(cost, now_ms)
    assert both.tokens(now_ms) == some.tokens(now_ms)
    assert charge.finish(now_ms) == expected.finish(now_ms)
    assert both.charged == some.charged


def test_a_refund_returns_at_most_the_charged_tokens() -> None:
    budget = budget_of(limit=2.0)
    budget.begin(strict=True).admit(12, 0)
    charge = budget.begin(strict=True)
    charge.admit(4, 0)
    charge.refund(100, 0)
    charge.refund(100, 0)
    assert budget.tokens(0) == 10
    assert charge.finish(0) == budget.charged == 0


def test_a_refund_does_not_exceed_the_burst() -> None:
    budget = budget_of(limit=2.0)
    charge = budget.begin(strict=True)
    charge.admit(4, 0)
    charge.refund(4, 60_000)
    assert budget.tokens(60_000) == 22


def test_a_permissive_request_within_the_limit_is_never_throttled_later() -> None:
    """A broker looks when it charges; what others took since is theirs to wait for."""
    budget = budget_of(limit=2.0)
    charge = budget.begin(strict=False)
    charge.admit(20, 0)
    budget.begin(strict=False).admit(100, 0)
    charge.refund(5, 0)
    assert charge.finish(0) == 0


@given(
    st.integers(1, 40).map(lambda halves: halves / 2),
    st.integers(0, 60),
    st.lists(st.tuples(st.integers(1, 50), st.booleans()), max_size=12),
)
def test_retrying_topics_after_refunds_gives_a_brokers_result(
    limit: float, taken: int, topics: list[tuple[int, bool]]
) -> None:
    """A broker charges only what it can do; Weir learns what it cannot from its answers, round by round."""
    weir, broker = budget_of(limit), budget_of(limit)
    for budget in (weir, broker):
        budget.begin(strict=False).admit(taken, 0)
    expected = broker.begin(strict=True)
    possible = [number for number, (_, fails) in enumerate(topics) if not fails]
    done = [number for number in possible if expected.admit(topics[number][0], 0)]
    charge = weir.begin(strict=True)
    created: list[int] = []
    waiting, failed = list(range(len(topics))), [0]
    while failed:
        forwarded = [number for number in waiting if charge.admit(topics[number][0], 0)]
        waiting = [number for number in waiting if number not in forwarded]
        failed = [number for number in forwarded if topics[number][1]]
        created += [number for number in forwarded if number not in failed]
        for number in failed:
            charge.refund(topics[number][0], 0)
    assert created == done
    assert weir.tokens(0) == broker.tokens(0)
    if done != possible:
        assert charge.finish(0) == expected.finish(0)


# One request


@given(costs, costs, st.floats(0.1, 20), st.integers(0, 40_000))
def test_would_refuse_predicts_the_result_of_admit(
    first: list[int], then: list[int], limit: float, now_ms: int
) -> None:
    budget = budget_of(limit)
    admitted(budget.begin(strict=False), first)
    before = budget.tokens(now_ms)
    told = budget.would_refuse(then, now_ms)
    assert budget.tokens(now_ms) == before
    assert told is not all(admitted(budget.begin(strict=True), then, now_ms))


def test_tokens_not_charged_before_a_new_limit_are_not_refunded() -> None:
    budget = budget_of(limit=2.0)
    budget.begin(strict=False).admit(20, 0)
    budget.set_limit(math.inf)
    charge = budget.begin(strict=False)
    charge.admit(10, 0)
    budget.set_limit(2.0)
    charge.refund(10, 0)
    assert budget.tokens(0) == 2


# At rest


def test_a_mutation_budget_is_not_idle_while_a_client_is_throttled() -> None:
    budget = budget_of(limit=2.0)
    charge = budget.begin(strict=False)
    charge.admit(62, 0)
    assert charge.finish(0) == 20_000
    budget.set_limit(1e6)  # so it is full after 11 s
    assert not budget.is_idle(19_999)
    assert budget.is_idle(20_000)


# Whose they are


def table(limit: float, entity: Entity = ANY_APP) -> QuotaTable:
    return QuotaTable({(entity, MUTATIONS): limit})


def looked_up(quotas: ClientQuotas[MutationBudget], client_id: str, now_ms: int = 0) -> MutationBudget:
    budget = quotas.budget("alice", client_id, now_ms)
    assert budget is not None
    return budget


def test_the_controllers_window_settings_size_the_token_bucket() -> None:
    quotas = mutation_rates(num_samples=100, window_s=2)
    put_in_force(quotas, table(5.0))
    assert looked_up(quotas, "app").tokens(0) == 1000


def test_a_new_mutation_limit_keeps_the_balance_and_the_throttle() -> None:
    quotas = mutation_rates()
    put_in_force(quotas, table(2.0))
    budget = looked_up(quotas, "app")
    charge = budget.begin(strict=True)
    assert admitted(charge, [30, 1]) == [True, False]
    put_in_force(quotas, table(4.0))
    assert (budget.limit, budget.tokens(0)) == (4.0, -8)
    assert charge.finish(0) == 4000
    assert looked_up(quotas, "app") is budget
    put_in_force(quotas, QuotaTable())
    assert quotas.budget("alice", "app", 0) is None
    assert budget.limit == math.inf


def test_shared_mutation_budgets_are_updated_and_expired_once() -> None:
    given: list[MutationBudget] = []

    def note(budget: MutationBudget, _pacing: Pacing) -> MutationBudget:
        given.append(budget)
        return budget

    cluster = mutation_rates()
    cluster.paced = note  # called whenever a limiter is given its limit
    put_in_force(cluster, table(2.0))
    brokers = [BrokerQuotas.create(table(2.0), mutations=cluster) for _ in range(3)]
    (budget,) = (cluster.budget("alice", "app", 0),)
    changed = table(3.0)
    given.clear()
    for quotas in brokers:
        put_in_force(quotas, changed)
    assert given == [budget]
    assert sum(sum(quotas.expire(IDLE_MS_MAX)) for quotas in brokers) == 1


def test_new_clients_share_the_overflow_mutation_budget_while_all_are_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weir.quotas.registry.LIMITERS_MAX", 5)
    quotas = mutation_rates()
    put_in_force(quotas, table(2.0))
    for number in range(5):
        looked_up(quotas, f"app-{number}").begin(strict=True).admit(22, 0)
    overflow = looked_up(quotas, "newcomer", 10_999)
    assert overflow.tags == Tags("alice", OVERFLOW)
    assert overflow.begin(strict=True).admit(10**6, 10_999), "counted, and never refused"
    assert looked_up(quotas, "another", 10_999) is overflow
    own = looked_up(quotas, "newcomer", 10_999 + ROOM_PAUSE_MS)
    assert own.tags == Tags("", "newcomer"), "after 11 s the others' buckets are full again"


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(-10, 100)), max_size=40))
def test_peeking_at_a_token_bucket_does_not_change_it(story: list[tuple[int, float]]) -> None:
    watched, alone = TokenBucket(0.7, 11, 1000, 0), TokenBucket(0.7, 11, 1000, 0)
    now_ms = 0
    for gap_ms, cost in story:
        watched.peek(now_ms + gap_ms // 2)
        now_ms += gap_ms
        watched.take(cost, now_ms)
        alone.take(cost, now_ms)
        assert watched.tokens(now_ms) == alone.tokens(now_ms) <= 7.7
