"""Metrics of SASL exchanges, and the way of the operator's rules to the connections."""

from __future__ import annotations

import pytest
from prometheus_client.core import Metric

from tests.proxy.sasl import (
    REFUSED,
    UNSUPPORTED_MECHANISM,
    authenticate,
    authenticated,
    handshake,
    plain,
    shaken,
)
from tests.proxy.wire import Wire, new_connection
from tests.proxy.worker_rigs import running_worker
from weir.proxy.admin.metrics import authentications as families
from weir.proxy.counters import Counters
from weir.proxy.handlers.sasl.identity import IdentityRules


def values(metrics: list[Metric]) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in metrics
        for sample in metric.samples
    }


def test_sasl_exchanges_are_counted_by_mechanism_and_result() -> None:
    wire = Wire(new_connection())
    for mechanism, error_code in (("X" * 1000, UNSUPPORTED_MECHANISM), ("GSSAPI", 0), ("PLAIN", 0)):
        wire.exchange(0, handshake(mechanism), shaken(error_code))
    for error_code in (REFUSED, 0):
        wire.exchange(0, authenticate(plain("alice")), authenticated(error_code=error_code))
    counters = wire.connection.counters
    counters.names_hidden = 3
    assert values(list(families(counters))) == {
        ("weir_authentications_total", "PLAIN", "success"): 1,
        ("weir_authentications_total", "PLAIN", "failure"): 1,
        ("weir_authentications_total", "other", "failure"): 1,
        ("weir_authentications_hidden_total",): 3,
    }


def test_no_sasl_exchange_is_counted_without_sasl() -> None:
    assert values(list(families(Counters()))) == {("weir_authentications_hidden_total",): 0}


@pytest.mark.trio
async def test_connections_use_the_configured_identity_rules() -> None:
    async with running_worker(unreadable_principal="kerberos") as rig:
        plans = rig.worker.plane.plans
        assert plans.identities.rules == IdentityRules(unreadable="kerberos")
        assert plans.for_broker({}).identities is plans.identities
