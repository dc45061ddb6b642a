"""`weir probe` at real brokers that ask for a login."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.kafka.fixtures import StartCluster
from tests.kafka.sasl import ALICE
from weir.cli.main import weir

pytestmark = pytest.mark.broker
FAILING = (
    *("--skip", "Produce/*/bytes-negative-nullable/*"),
    *("--skip", "*/frame-empty/*", "--skip", "*/header-truncated/api-key"),
    *("--skip", "ControlledShutdown/*", "--skip", "ApiVersions/v0/sasl-unauthenticated-large"),
)
"""Cases that a release of Kafka fails, see docs/reference/malformed-requests.md."""


def probe(*options: str | Path) -> Result:
    return CliRunner().invoke(weir, ["probe", *map(str, options)])


@pytest.mark.parametrize(("version", "mechanism"), [("0.10.2.2", "PLAIN"), ("4.2.0", "SCRAM-SHA-512")])
def test_a_listener_with_sasl_is_probed(
    version: str, mechanism: str, kafka_cluster: StartCluster, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(ALICE.password + "\n")
    address = kafka_cluster(version).sasl_bootstrap
    files = ("--set", f"upstream_sasl_password_file={secret}")
    login = (
        "--set",
        f"upstream_sasl_username={ALICE.name}",
        "--set",
        f"upstream_sasl_mechanism={mechanism}",
        *files,
    )
    result = probe("--upstream", address, *login, *FAILING, "--random", "0")
    assert result.exit_code == 0, result.output
    secret.write_text("wrong")
    assert probe("--upstream", address, *login).exit_code == 2
