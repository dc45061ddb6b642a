"""Sequences of mutations: Weir in front of a controller without quota tells what one with the quota tells,
and with limits on what exists with a prefix, what one with such a policy tells (KIP-108).

The model is `controller.Controller` with a bucket: topic by topic, own errors first and free. It goes through
growths and deletions in the request's order, as Weir does; a broker goes in the order of its hashes. Left out
is one case, on purpose: a topic that fails for a reason that only the broker sees and meets an exhausted
quota, which Weir tells 89.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kfake.controller import NODE, Bucket, Controller, Policy
from tests.kfake.direct import Client
from tests.mutations.requests import Answer, Create, Mutation
from tests.proxy.counted_topics import count_topics, limits_of
from tests.proxy.mutation_steps import RATE, SAMPLES, STEPS, mutation_of
from tests.proxy.wire import new_connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from weir.quotas.client_quotas import mutation_rates

STRICT_FROM: Final = 6
"""Of CreateTopics."""
DEFAULT: Final = 3
"""The controller's number of partitions."""
PROPERTY: Final = settings(max_examples=100)


def outcome(answer: Answer) -> set[tuple[str | None, UUID, int]]:
    """What became of whom, in no order; what is named twice may be told once."""
    return {(one.name, one.topic_id, one.error_code) for one in answer.results}


def left_out(mutation: Mutation, balance: float) -> bool:
    """Whether a topic that fails for what only the broker sees may meet an exhausted quota."""
    if not isinstance(mutation, Create) or mutation.version < STRICT_FROM:
        return False
    hidden = any(topic.configs or [99] in topic.assignments for topic in mutation.topics)
    costs = [len(topic.assignments) or max(topic.partitions, DEFAULT) for topic in mutation.topics]
    return hidden and balance < sum(costs)


POLICIES: Final = st.sampled_from([None, Policy("p.", 2, 100), Policy("p.", 4, 6), Policy("p.", 3, 8)])


@given(st.lists(STEPS, min_size=1, max_size=12), POLICIES)
@PROPERTY
def test_weir_answers_mutations_as_a_controller_with_the_quota_would(
    steps: list[tuple[int, object]], policy: Policy | None
) -> None:
    entity = Entity(client_id="app")
    table = QuotaTable({(entity, QuotaKey.CONTROLLER_MUTATION_RATE): RATE})
    quotas = BrokerQuotas.create(table, mutations=mutation_rates(SAMPLES, 1))
    plans = Plans(Counters())
    model, behind = Controller(bucket=Bucket(RATE, RATE * SAMPLES), policy=policy), Controller()
    counts = count_topics(plans, limits_of(policy))
    counts.read({}, 0)
    assert model.bucket is not None
    now_ms = 1_000_000
    for pause_ms, what in steps:
        now_ms += pause_ms
        mutation = mutation_of(what, behind)  # type: ignore[arg-type]  # one of three
        frame = mutation.frame("app")
        if left_out(mutation, model.bucket.balance(now_ms)):
            continue
        model.now_ms = now_ms
        expected = mutation.answer(model.answer(frame))
        weir = Client(new_connection(quotas=quotas, plans=plans, node_id=NODE), behind)
        (told,) = weir.send(now_ms, frame)
        found = mutation.answer(told)
        assert outcome(found) == outcome(expected), mutation
        assert abs(found.throttle_ms - expected.throttle_ms) <= 1, mutation
        if found.throttle_ms:
            assert weir.connection.throttled_until_ms == now_ms + found.throttle_ms
        assert behind.sizes() == model.sizes()
        its = [size for name, size in behind.sizes().items() if name.startswith("p.")]
        assert {reading.number for reading in counts.readings()} <= {len(its), sum(its)}
        budget = quotas.mutations.budget("ANONYMOUS", "app", now_ms)
        assert budget is not None
        assert abs(budget.tokens(now_ms) - model.bucket.balance(now_ms)) < 1e-6, mutation
