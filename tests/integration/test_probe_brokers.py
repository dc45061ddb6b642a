"""`weir probe` at real brokers: every well-formed request is answered, and outcomes repeat."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

from tests.kafka.fixtures import StartCluster
from tests.kafka.sasl import ALICE
from weir.cli.main import weir
from weir.conformance.probe.expectations import parse_expectations

pytestmark = pytest.mark.broker
VERSIONS = ["0.10.2.2", "1.1.1", "2.8.2", "3.9.1", "4.2.0", "4.4.0"]
FAILING = (
    *("--skip", "Produce/*/bytes-negative-nullable/*"),
    *("--skip", "*/frame-empty/*", "--skip", "*/header-truncated/api-key"),
    *("--skip", "ControlledShutdown/*", "--skip", "ApiVersions/v0/sasl-unauthenticated-large"),
)
"""Cases that a release of Kafka fails, see docs/reference/malformed-requests.md."""


def probe(*options: str | Path) -> Result:
    return CliRunner().invoke(weir, ["probe", *map(str, options)])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_passes_and_gives_the_same_outcomes_again(
    version: str, fresh_cluster: StartCluster, tmp_path: Path
) -> None:
    address, expected = fresh_cluster(version).bootstrap, tmp_path / "expected.json"
    cases = ("--target", address, "--seed", "11", *FAILING)
    first = probe(*cases, "--write-expect", expected)
    assert first.exit_code == 0, first.output
    assert set(parse_expectations(expected.read_bytes()).values()) > {"answer", "error 3", "silence"}
    again = probe(*cases, "--expect", expected)
    assert again.exit_code == 0, again.output
    topics = AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).topics
    assert {name for name in topics if not name.startswith("__")} == set()


@pytest.mark.parametrize("version", ["0.10.2.2", "4.2.0"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_listener_with_sasl_is_probed(
    version: str, mechanism: str, kafka_cluster: StartCluster, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(ALICE.password + "\n")
    address = kafka_cluster(version).sasl_bootstrap
    login = ("--user", ALICE.name, "--password-file", secret, "--mechanism", mechanism)
    result = probe("--target", address, *login, *FAILING, "--random", "0")
    assert result.exit_code == 0, result.output
    secret.write_text("wrong")
    assert probe("--target", address, *login).exit_code == 2
