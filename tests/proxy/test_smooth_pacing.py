"""Smooth pacing at a connection: waits are told, mute it, empty fetches, and are capped, like Kafka's."""

from __future__ import annotations

from typing import Final

from tests.proxy.playbook import Playbook
from tests.proxy.throttled import fetch_budget
from tests.proxy.wire import new_connection, quota_table
from tests.wire.messages import emptied, fetch, fetched, least, produce, produced
from weir.quotas import BrokerQuotas
from weir.quotas.table.options import Pacing

RATE: Final = 1000
CREDIT: Final = RATE // 10
SIZE: Final = 2 * RATE + CREDIT
"""Worth two seconds beyond the credit."""


def smooth_quotas() -> BrokerQuotas:
    return BrokerQuotas.create(quota_table(produce=RATE, fetch=RATE).paced(Pacing.SMOOTH))


def test_smooth_pacing_tells_a_producer_its_wait_and_mutes_it_so_long() -> None:
    asked = produce(1, SIZE)
    with Playbook(connection=new_connection(quotas=smooth_quotas())) as play:
        play.forwards(asked)
        play.muted_until(2000)
        play.returns(produced(1), told=produced(1, throttle_ms=2000))


def test_smooth_pacing_tells_no_more_than_the_cap_and_charges_the_rest_later() -> None:
    quotas = smooth_quotas()
    first, second = produce(1, SIZE), produce(2, RATE)
    with Playbook(connection=new_connection(quotas=quotas, throttle_ms_max=500)) as play:
        play.forwards(first)
        play.muted_until(500)
        play.returns(produced(1), told=produced(1, throttle_ms=500))
        play.at(500)
        play.forwards(second)
        play.muted_until(1000)
        play.returns(produced(2), told=produced(2, throttle_ms=500))
    budget = quotas.ledger("ANONYMOUS", "app", 0).produce
    assert budget is not None
    assert budget.charge(0, 1000) == 2000


def test_a_fetch_over_a_smooth_quota_brings_no_records_on_any_connection() -> None:
    quotas = smooth_quotas()
    assert fetch_budget(quotas).charge(SIZE, 0) == 2000
    with Playbook(connection=new_connection(quotas=quotas)) as play:
        play.at(500)
        play.client(fetch(1))
        play.to_broker(least(1))
        play.returns(fetched(1, 10), told=emptied(1, throttle_ms=1500))
        play.muted_until(2000)
