"""`weir probe` at real brokers, at librdkafka's mock cluster, and at Weir in front of each: every outcome is
the expected one.

`python -m tests.conformance.expected` writes the expectations again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.expected import (
    MOCK,
    RELEASES,
    expected,
    mock_cluster,
    probed,
    probed_mock,
    probed_well_formed,
)
from tests.conformance.intended_differences import missing, unintended
from tests.integration.conftest import StartWeir
from tests.integration.with_sasl import Front
from tests.kafka.fixtures import StartCluster
from tests.kafka.sasl import ALICE
from weir.conformance.probe.brokers import without_faults
from weir.conformance.probe.expectations import differences
from weir.conformance.probe.login import Login

HIGH_QUOTAS = """
[[quota]]
client_id = "<default>"
producer_byte_rate = 1e12
consumer_byte_rate = 1e12
request_percentage = 100000
controller_mutation_rate = 100000
"""
SASL = ("*/sasl-*",)
WITH_WEIR = ("0.10.2.2", "2.8.2", "4.4.0")
"""Releases that are probed through Weir, which passes on what it does not change; the others are probed
directly.
"""
OPTIONS = ("--set", "uplift=false", "--quota-admins", "User:ANONYMOUS")


@pytest.mark.broker
@pytest.mark.parametrize("release", [release for release in RELEASES if release not in WITH_WEIR])
def test_a_broker_gives_the_expected_outcomes(fresh_cluster: StartCluster, release: str) -> None:
    found = differences(probed(fresh_cluster(release).bootstrap), expected(release))
    assert [str(one) for one in without_faults(found, release)] == []


@pytest.mark.broker
@pytest.mark.parametrize("release", WITH_WEIR)
def test_weir_differs_from_the_broker_in_intended_outcomes_only(
    fresh_cluster: StartCluster, start_weir: StartWeir, release: str
) -> None:
    weir = start_weir(fresh_cluster(release).bootstrap, HIGH_QUOTAS, options=OPTIONS)
    found = differences(probed(weir.bootstrap), expected(release))
    assert [str(one) for one in unintended(found, release)] == []
    assert missing(found, release) == []


@pytest.mark.broker
@pytest.mark.parametrize("release", ["0.10.2.2", "2.8.2", "4.2.0"])
def test_weir_answers_sasl_messages_out_of_order_like_the_broker(
    kafka_cluster: StartCluster, start_weir: StartWeir, tmp_path: Path, release: str
) -> None:
    """Without expectations of their own: the broker is probed beside Weir."""
    cluster, login = kafka_cluster(release), Login(ALICE.name, ALICE.password)
    weir = Front(start_weir, cluster, tmp_path, HIGH_QUOTAS, *OPTIONS)
    broker = {result.case: result.summary for result in probed(cluster.sasl_bootstrap, SASL, login=login)}
    found = differences(probed(weir.bootstrap, SASL, login=login), broker)
    assert len(broker) > 8
    assert [str(one) for one in unintended(found, release)] == []
    assert missing(found, release, with_login=True) == []


@pytest.mark.slow
def test_the_mock_cluster_of_librdkafka_gives_the_expected_outcomes() -> None:
    assert [str(one) for one in differences(probed_mock(), expected(MOCK))] == []


@pytest.mark.slow
def test_weir_differs_from_the_mock_cluster_in_intended_outcomes_only(start_weir: StartWeir) -> None:
    with mock_cluster() as bootstrap:
        weir = start_weir(bootstrap, HIGH_QUOTAS, options=OPTIONS)
        found = differences(probed_well_formed(weir.bootstrap), expected(MOCK))
    assert [str(one) for one in unintended(found, MOCK)] == []
    assert missing(found, MOCK) == []
