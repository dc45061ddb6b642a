"""The quota profile at real brokers, and at Weir in front of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.integration.conftest import StartWeir, start_weir
from tests.kafka.fixtures import StartCluster, kafka_cluster
from weir.conformance.probe.case import Result
from weir.conformance.probe.link import ProbeLink, ProbeTarget
from weir.conformance.probe.measure.measurement import measure
from weir.conformance.probe.quotas import QuotaProfile
from weir.conformance.probe.quotas.waiting import until
from weir.conformance.probe.requests.names import PREFIX
from weir.conformance.probe.runner import ProbeOptions, ProbeRun
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    MetadataRequest,
    MetadataResponse,
)

__all__ = ["kafka_cluster", "start_weir"]

pytestmark = [pytest.mark.broker, pytest.mark.measured]

INTENDED = re.compile(
    r"quotas/fetch/v\d+/no-records"  # Weir delivers the response that exceeds the quota
    r"|quotas/request-time/ApiVersions/v[12]/.*"  # a connection's first goes to 0.10.2.2 unchanged
)
"""Checks that fail at Weir, as docs/reference/probe-quotas.md says."""


def run(bootstrap: str, only: Sequence[str] = (), quotas_set: str | None = None) -> list[Result]:
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    target = ProbeTarget(host, int(port))
    options = ProbeOptions(target, protocol=False, quotas=True, quotas_set=quotas_set, only=tuple(only))
    return list(ProbeRun(options).results())


def failures(results: Sequence[Result]) -> dict[str, str]:
    return {result.case: result.message for result in results if not result.passed}


@pytest.mark.parametrize("version", ["2.8.2", "3.9.1", "4.2.0"])  # each lacks other checks
def test_brokers_pass_every_check_of_the_quota_profile(kafka_cluster: StartCluster, version: str) -> None:
    results = run(kafka_cluster(version).bootstrap)
    assert failures(results) == {}
    assert len(results) > 600
    assert until(lambda: not left_behind(kafka_cluster(version).bootstrap), 10.0)


def test_a_broker_holds_its_quotas_while_they_are_measured(kafka_cluster: StartCluster) -> None:
    bootstrap = kafka_cluster("3.9.1").bootstrap
    host, port = bootstrap.rsplit(":", 1)
    found = measure(ProbeTarget(host, int(port)), None, None, lambda _share: None)
    assert found.produce is not None
    assert found.strict is not None
    assert found.lax is not None
    assert 0 < found.produce.steady.rates["60"].mean < 1.05  # on a busy machine, a client demands less
    assert 0 < found.strict.steady.rates["60"].mean < 1.1
    assert (found.strict.steady.refused > 0, found.lax.steady.refused) == (True, 0)
    assert found.error_89 == {"CreateTopics": "6-7", "CreatePartitions": "3", "DeleteTopics": "5-6"}
    assert until(lambda: not left_behind(bootstrap), 10.0)


def left_behind(bootstrap: str) -> list[str]:
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    component = DescribeClientQuotasRequest.ComponentData(entity_type="client-id", match_type=2, match=None)
    quotas = DescribeClientQuotasRequest(components=[component], strict=True)
    with ProbeLink(ProbeTarget(host, int(port))) as link:
        described = link.ask(quotas, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1)
        assert isinstance(described, DescribeClientQuotasResponse)
        listed = link.ask(MetadataRequest(topics=None), ApiKey.METADATA, 1)
        assert isinstance(listed, MetadataResponse)
    client_ids = [part.entity_name or "" for entry in described.entries or () for part in entry.entity]
    names = [*client_ids, *(topic.name or "" for topic in listed.topics)]
    return [name for name in names if name.startswith(PREFIX)]


@pytest.mark.parametrize("version", ["0.10.2.2", "4.2.0"])
def test_weir_differs_from_brokers_only_in_the_intended_checks(
    kafka_cluster: StartCluster, start_weir: StartWeir, version: str
) -> None:
    weir = start_weir(kafka_cluster(version).bootstrap, options=("--quota-admins", "User:ANONYMOUS"))
    results = run(weir.bootstrap)
    failed = failures(results)
    assert {case: text for case, text in failed.items() if not INTENDED.fullmatch(case)} == {}
    assert len(results) - len(failed) > 150


def test_weir_with_quotas_of_its_file_passes_the_checks_that_alter_nothing(
    kafka_cluster: StartCluster, start_weir: StartWeir
) -> None:
    """An operator sets the listed quotas beforehand, here in Weir's quota file."""
    cluster, name = kafka_cluster("2.8.2"), "beforehand"
    only = ("quotas/produce/v8", "quotas/create-topics/v6", "quotas/request-time/Metadata")
    host, port = cluster.bootstrap.rsplit(":", 1)
    profile = QuotaProfile(ProbeTarget(host, int(port)), set_for_run=name)
    file = "\n".join(
        f'[[quota]]\nclient_id = "{quota.client_id}"\n{quota.key} = {quota.value:.8f}\n'.replace(
            ".00000000", ""
        )
        for quota in profile.quotas
    )
    results = run(start_weir(cluster.bootstrap, file).bootstrap, only, name)
    assert failures(results) == {}
    assert len(results) > 30


def test_a_broker_without_the_quotas_fails_every_check_of_enforcement(kafka_cluster: StartCluster) -> None:
    """The operator says that the quotas are set, but they are not."""
    only = (
        "quotas/produce/v9",
        "quotas/fetch/v12",
        "quotas/create-topics/v7",
        "quotas/request-time/Heartbeat",
    )
    results = run(kafka_cluster("3.9.1").bootstrap, only, "never-set")
    passed = {result.case.rpartition("/")[2] for result in results if result.passed}
    assert passed == {"below-quota", "admitted"}
    assert {"throttle-field", "mute", "error-89", "no-records"} <= {
        case.rpartition("/")[2] for case in failures(results)
    }
