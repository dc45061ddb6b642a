"""Shadow budgets: charged as if they were enforced, only for clients for which a shadow entry wins."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.changes import put_in_force
from weir.quotas import (
    DEFAULT,
    BrokerQuotas,
    Budget,
    ClientLedger,
    Entity,
    MutationBudget,
    QuotaKey,
    QuotaTable,
    Tags,
)
from weir.quotas.limiters.chain import Chain
from weir.quotas.mutations import MutationLedger, ShadowMutationBudget
from weir.quotas.table.bounded_names import EMPTY

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
MUTATIONS = QuotaKey.CONTROLLER_MUTATION_RATE
ALICE, APP, ANY_APP = Entity("alice"), Entity(client_id="app"), Entity(client_id=DEFAULT)


def is_charged(ledger: ClientLedger) -> bool:
    return ledger.charges_produce or ledger.charges_fetch or ledger.charges_request


def table(
    enforced: Mapping[Entity, float] | None = None,
    shadow: Mapping[Entity, float] | None = None,
    key: QuotaKey = PRODUCE,
) -> QuotaTable:
    return QuotaTable(
        {(entity, key): value for entity, value in (enforced or {}).items()},
        {(entity, key): value for entity, value in (shadow or {}).items()},
    )


def produces(
    quotas: BrokerQuotas, user: str = "alice", client_id: str = "app", now_ms: int = 0
) -> tuple[Budget | None, Budget | None]:
    ledger = quotas.ledger(user, client_id, now_ms)
    shadow = None if ledger.shadow is None else ledger.shadow.produce
    assert not isinstance(ledger.produce, Chain)
    assert not isinstance(shadow, Chain)
    return ledger.produce, shadow


# Who has one


def test_a_winning_shadow_entry_is_counted_beside_the_enforced_entry() -> None:
    quotas = BrokerQuotas.create(table({ANY_APP: 2000.0}, {ALICE: 1000.0}))
    enforced, shadow = produces(quotas)
    assert enforced is not None
    assert shadow is not None
    assert (enforced.tags, shadow.tags) == (Tags("", "app"), Tags("alice", ""))


# What it counts


def test_a_shadow_budget_counts_overlapping_throttles_once() -> None:
    """10 s of 1000 bytes/s pass at once; each further 1000 are a second more to wait."""
    shadow = Budget(Tags("alice", ""), 1000.0, 0, is_shadow=True)
    assert [shadow.charge(value, 0) for value in (10_000, 1000, 1000)] == [0, 1000, 2000]
    assert (shadow.charged, shadow.throttled, shadow.throttle_ms_total) == (12_000, 2, 2000)
    assert shadow.charge(1000, 500) == 2500  # 13 s' worth in a window of 10.5 s
    assert (shadow.throttled, shadow.throttle_ms_total) == (3, 3000)


STORY = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 10_000)), min_size=1, max_size=60)


@given(st.floats(1, 1e6), STORY)
def test_a_shadow_budget_equals_an_enforced_one_up_to_the_first_throttle(
    limit: float, story: list[tuple[int, int]]
) -> None:
    enforced, shadow = Budget(Tags("", "app"), limit, 0), Budget(Tags("", "app"), limit, 0, is_shadow=True)
    now_ms = 0
    for gap_ms, value in story:
        now_ms += gap_ms
        assert enforced.charge(value, now_ms) == shadow.charge(value, now_ms)
        figures = (enforced.charged, enforced.throttled, enforced.throttle_ms_total, enforced.rate(now_ms))
        assert (shadow.charged, shadow.throttled, shadow.throttle_ms_total, shadow.rate(now_ms)) == figures
        if enforced.throttled:
            break


@given(st.floats(1, 1e6), STORY)
def test_shadow_throttle_time_never_exceeds_elapsed_and_remaining_time(
    limit: float, story: list[tuple[int, int]]
) -> None:
    shadow = Budget(Tags("", "app"), limit, 0, is_shadow=True)
    now_ms = 0
    for gap_ms, value in story:
        now_ms += gap_ms
        shadow.charge(value, now_ms)
        assert 0 <= shadow.throttle_ms_total <= shadow.throttled_until_ms
    if shadow.throttled:
        assert shadow.throttle_ms_total > 0


# Changes


def test_usage_of_a_shadow_budget_counts_once_its_entry_is_enforced() -> None:
    quotas = BrokerQuotas.create(table(shadow={ALICE: 1000.0}))
    _none, shadow = produces(quotas)
    assert shadow is not None
    assert shadow.charge(9000, 0) == 0
    assert shadow.charge(3000, 100) == 1900  # 12 s' worth in 10.1 s: nobody is told
    put_in_force(quotas, table({ALICE: 1000.0}))
    enforced, none = produces(quotas, now_ms=200)
    assert none is None
    assert enforced is not None
    assert enforced.rate(200) == 12_000 / 10.2
    assert enforced.throttled_until_ms <= 200, "no fetch waits for what nobody was told"
    assert (enforced.charged, enforced.throttled) == (0, 0), "its counts are its own"
    assert enforced.charge(1000, 200) == 2800


# Mutations


def mutation_ledger(quotas: BrokerQuotas, now_ms: int = 0) -> MutationLedger:
    ledger = quotas.mutation_ledger("alice", "app", now_ms)
    assert ledger is not None
    return ledger


def shadow_mutations(rate: float = 1.0) -> tuple[BrokerQuotas, MutationBudget]:
    quotas = BrokerQuotas.create(table(shadow={ALICE: rate}, key=MUTATIONS))
    ledger = mutation_ledger(quotas)
    assert ledger.enforced is None
    assert isinstance(ledger.shadow, MutationBudget)
    return quotas, ledger.shadow


def test_shadow_mutations_that_would_be_refused_cost_no_tokens() -> None:
    """11 tokens: 12 may be taken, one more topic is refused, for a second."""
    _quotas, shadow = shadow_mutations()
    charge = shadow.begin(strict=True)
    assert [charge.admit(cost, 0) for cost in (12, 5, 5)] == [True, False, False]
    assert charge.finish(0) == 1000
    assert (shadow.charged, shadow.refused, shadow.throttled, shadow.throttle_ms_total) == (12, 2, 1, 1000)
    assert shadow.tokens(0) == -1


def test_permissive_shadow_mutations_beyond_the_quota_cost_no_tokens() -> None:
    _quotas, shadow = shadow_mutations()
    for _request in range(3):
        charge = shadow.begin(strict=False)
        charge.admit(8, 0)
        charge.admit(8, 0)
        assert charge.finish(0) == 5000
    assert (shadow.charged, shadow.refused, shadow.throttled, shadow.throttle_ms_total) == (16, 0, 3, 5000)
    assert shadow.tokens(0) == -5


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 9), st.booleans()), min_size=1, max_size=40))
def test_shadow_mutations_count_as_enforced_up_to_the_first_refusal(
    story: list[tuple[int, int, bool]],
) -> None:
    enforced, shadow = MutationBudget(Tags("", "a"), 2.0, 0), ShadowMutationBudget(Tags("", "a"), 2.0, 0)
    now_ms = 0
    for gap_ms, cost, strict in story:
        now_ms += gap_ms
        for budget in (enforced, shadow):
            charge = budget.begin(strict=strict)
            charge.admit(cost, now_ms)
            charge.finish(now_ms)
        assert shadow.tokens(now_ms) == enforced.tokens(now_ms)
        figures = (enforced.charged, enforced.refused, enforced.throttled, enforced.throttle_ms_total)
        assert (shadow.charged, shadow.refused, shadow.throttled, shadow.throttle_ms_total) == figures
        if enforced.throttled:
            break


def test_shadow_mutations_count_once_enforced_without_a_negative_balance() -> None:
    for taken, left in ((4, 7), (15, 0)):
        quotas, shadow = shadow_mutations()
        shadow.begin(strict=True).admit(taken, 0)
        put_in_force(quotas, table({ALICE: 1.0}, key=MUTATIONS))
        ledger = mutation_ledger(quotas)
        assert ledger.shadow is None
        assert ledger.enforced is not None
        assert ledger.enforced.tokens(0) == left


def test_existing_topics_are_charged_to_enforced_and_shadow_budgets() -> None:
    quotas = BrokerQuotas.create(table({ALICE: 2.0}, {ALICE: 1.0}, key=MUTATIONS))
    enforced, shadow = ledger = mutation_ledger(quotas)
    assert isinstance(enforced, MutationBudget)
    assert isinstance(shadow, MutationBudget)
    charge = ledger.begin_late()
    charge.charge(14, 0)
    assert charge.finish(0) == 0, "the enforced quota has 22 tokens"
    assert (enforced.charged, shadow.charged) == (14, 14)
    assert (enforced.throttled, shadow.throttled, shadow.throttle_ms_total) == (0, 1, 3000)


# Clients without a client-id


@pytest.mark.parametrize("user", ["alice", "ANONYMOUS"])
@pytest.mark.parametrize("entity", [ANY_APP, Entity(DEFAULT, DEFAULT)], ids=str)
def test_default_quotas_do_not_apply_to_an_empty_client_id(user: str, entity: Entity) -> None:
    """Kafka's own rule, seen with brokers: such a client is unlimited."""
    quotas = BrokerQuotas.create(table({entity: 1000.0}))
    assert not is_charged(quotas.ledger(user, "", 0))


@pytest.mark.parametrize(
    ("entity", "tags"),
    [
        (ANY_APP, Tags("", EMPTY)),
        (Entity(DEFAULT, DEFAULT), Tags("alice", EMPTY)),
        (Entity("alice", DEFAULT), Tags("alice", EMPTY)),
    ],
    ids=str,
)
def test_default_quotas_apply_to_an_empty_client_id_if_configured(entity: Entity, tags: Tags) -> None:
    quotas = BrokerQuotas.create(table({entity: 1000.0}), unnamed=EMPTY)
    payer = produces(quotas, client_id="")[0]
    assert payer is not None
    assert (payer.tags, payer.limit) == (tags, 1000.0)
    put_in_force(quotas, table({entity: 500.0}))
    assert produces(quotas, client_id="")[0] is payer
    assert payer.limit == 500.0
    mutations = BrokerQuotas.create(table({entity: 1.0}, key=MUTATIONS), unnamed=EMPTY)
    assert mutations.mutation_ledger("alice", "", 0) is not None


def test_a_default_client_id_quota_precedes_the_users_for_an_empty_client_id() -> None:
    """Kafka's precedence: (user, default client-id) before (user)."""
    both = table({Entity("alice", DEFAULT): 1.0, ALICE: 2.0})
    assert produces(BrokerQuotas.create(both, unnamed=EMPTY), client_id="")[0].limit == 1.0  # type: ignore[union-attr]  # there is one
    assert produces(BrokerQuotas.create(both), client_id="")[0].limit == 2.0  # type: ignore[union-attr]  # there is one
