"""Pacing and scope of entries: which of them hold for a client, and what changes of entries do to them."""

from __future__ import annotations

from itertools import product
from typing import Final

from tests.quotas.changes import put_in_force
from weir.quotas import DEFAULT, BrokerQuotas, Entity, Prefix, QuotaKey, QuotaTable
from weir.quotas.limiters.smooth import SmoothBudget
from weir.quotas.table.options import PLAIN, Options, Pacing, Scope

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, BOB, ANY_APP = Entity("alice"), Entity("bob"), Entity(client_id=DEFAULT)
SMOOTH: Final = Options(Pacing.SMOOTH)
SAMPLED: Final = Options(Pacing.KAFKA)
TOGETHER: Final = Options(Pacing.SMOOTH, Scope.CLUSTER)


def is_smooth(table: QuotaTable, user: str, client_id: str = "app") -> bool:
    return isinstance(BrokerQuotas.create(table).ledger(user, client_id, 0).produce, SmoothBudget)


def test_an_entrys_pacing_comes_before_the_configured_one() -> None:
    for said, default in product((PLAIN, SMOOTH, SAMPLED), Pacing):
        table = QuotaTable({(ALICE, PRODUCE): 1000.0}, None, {(ALICE, PRODUCE): said})
        smooth = said is SMOOTH or (said is PLAIN and default is Pacing.SMOOTH)
        assert is_smooth(table.paced(default), "alice") == smooth


def test_the_options_of_the_entry_that_wins_hold() -> None:
    etl = (Entity(client_id=Prefix("etl-")), PRODUCE)
    table = QuotaTable({(ALICE, PRODUCE): 1.0, etl: 2.0, (ANY_APP, PRODUCE): 3.0}, None, {etl: SMOOTH})
    assert not is_smooth(table, "alice", "etl-1")
    assert is_smooth(table, "bob", "etl-1")
    assert not is_smooth(table, "bob", "app")


def test_the_shadow_entry_and_the_enforced_one_have_options_of_their_own() -> None:
    values = {(ALICE, PRODUCE): 1000.0}
    table = QuotaTable(values, values, {(ALICE, PRODUCE): SAMPLED}, {(ALICE, PRODUCE): SMOOTH})
    ledger = BrokerQuotas.create(table).ledger("alice", "app", 0)
    assert ledger.shadow is not None
    assert not isinstance(ledger.produce, SmoothBudget)
    assert isinstance(ledger.shadow.produce, SmoothBudget)
    in_shadow = table.in_shadow()
    assert in_shadow.options_of(ALICE, shadow=True) == SMOOTH
    assert in_shadow.options_of(ALICE) == PLAIN


def test_new_options_replace_those_of_an_entry_and_of_no_other() -> None:
    table = QuotaTable({(ALICE, PRODUCE): 1.0, (BOB, PRODUCE): 1.0}, None, {(BOB, PRODUCE): SMOOTH})
    altered = table.altered({(ALICE, PRODUCE): 1.0}, options=TOGETHER)
    assert (altered.options_of(ALICE), altered.options_of(BOB)) == (TOGETHER, SMOOTH)
    assert altered.altered({(ALICE, PRODUCE): 1.0}, options=PLAIN) == table


def test_tables_that_differ_in_options_only_are_not_equal() -> None:
    values = {(ALICE, PRODUCE): 1.0}
    plain, smooth = QuotaTable(values), QuotaTable(values, None, {(ALICE, PRODUCE): SMOOTH})
    assert plain != smooth
    assert plain != plain.paced(Pacing.SMOOTH)
    assert plain == QuotaTable(values, None, {(ALICE, PRODUCE): PLAIN})
    assert not plain.limits(PRODUCE).same_as(smooth.limits(PRODUCE))
    assert not plain.limits(PRODUCE).same_as(plain.paced(Pacing.SMOOTH).limits(PRODUCE))


def test_a_change_of_pacing_reaches_open_connections_and_keeps_what_was_used() -> None:
    plain = QuotaTable({(ALICE, PRODUCE): 1000.0})
    quotas = BrokerQuotas.create(plain)
    before = quotas.ledger("alice", "app", 0).produce
    assert before is not None
    wait_ms = before.charge(15_000, 0)
    was = quotas.generation
    put_in_force(quotas, QuotaTable({(ALICE, PRODUCE): 1000.0}, None, {(ALICE, PRODUCE): SMOOTH}))
    assert quotas.generation > was
    after = quotas.ledger("alice", "app", 0).produce
    assert isinstance(after, SmoothBudget)
    assert (after.charged, after.throttled_until_ms) == (15_000, wait_ms)
    put_in_force(quotas, plain)
    again = quotas.ledger("alice", "app", 0).produce
    assert again is not None
    assert again.charge(0, 0) == wait_ms
