"""Quotas of a broker at which a topic is over its rate."""

from __future__ import annotations

from tests.proxy.wire import Wire, new_connection
from tests.wire.messages import produce_to
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable

RATE = 1000
RATES = QuotaTable({(Entity(topic="a"), QuotaKey.PRODUCER_BYTE_RATE): float(RATE)})
SMALL_BUFFER = 4096


def exceeded(until_ms: int) -> BrokerQuotas:
    """Return quotas at which the topic `a` is over its rate until this time (ms)."""
    quotas = BrokerQuotas.create(RATES)
    wire = Wire(new_connection(quotas=quotas))
    wire.feed(0, client=produce_to(a=10_000 + until_ms))
    assert wire.connection.throttled_until_ms == until_ms
    return quotas
