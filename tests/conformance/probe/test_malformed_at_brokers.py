"""Real brokers answer malformed requests, or close the connection, except where Kafka is known to hang."""

from __future__ import annotations

import pytest

from tests.kafka.fixtures import StartCluster
from tests.kafka.sasl import ALICE
from weir.conformance.probe.case import CaseOutcome, Result
from weir.conformance.probe.link import ProbeTarget
from weir.conformance.probe.login import Login
from weir.conformance.probe.runner import ProbeOptions, ProbeRun

HANGS = {"3.9.1": {"bytes-negative-nullable"}, "2.8.2": set[str]()}
"""Release → classes that it never answers, see docs/reference/malformed-requests.md."""
MALFORMED = ("Produce/*/*/*", "Metadata/*/*/*", "*/version-*", "*/unknown-api", "*/sasl-*")


def results(bootstrap: str, *only: str, login: Login | None = None) -> list[Result]:
    host, port = bootstrap.split(":")
    return list(
        ProbeRun(ProbeOptions(ProbeTarget(host, int(port), timeout_s=5.0), login, only=only)).results()
    )


@pytest.mark.broker
@pytest.mark.parametrize("version", HANGS)
def test_a_broker_answers_malformed_requests_or_closes(kafka_cluster: StartCluster, version: str) -> None:
    found = results(kafka_cluster(version).bootstrap, *MALFORMED)
    assert len(found) > 300
    failed = [result for result in found if not result.passed]
    assert {result.case.split("/")[2] for result in failed} == HANGS[version]
    assert {result.outcome for result in failed} <= {CaseOutcome.HUNG}


@pytest.mark.broker
def test_a_broker_refuses_sasl_messages_out_of_order(kafka_cluster: StartCluster) -> None:
    login = Login(ALICE.name, ALICE.password)
    found = results(kafka_cluster("3.9.1").sasl_bootstrap, "*/sasl-*", login=login)
    outcomes = {result.case: result.summary for result in found}
    assert [result for result in found if not result.passed] == []
    assert outcomes["SaslHandshake/v1/sasl-unknown-mechanism"] == "error 33"
    assert outcomes["SaslAuthenticate/v2/sasl-wrong-password"] == "error 58"
    assert outcomes["ApiVersions/v0/sasl-instead-of-v2"] == "error 34"
    assert outcomes["SaslAuthenticate/v2/sasl-before-handshake"] == "closed"
    assert outcomes["ApiVersions/v0/sasl-after-bare-token"] == "answer"
