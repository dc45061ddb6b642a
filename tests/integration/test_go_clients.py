"""Quotas that other people's tools set over Kafka's protocol: the libraries of rpk and of a Terraform provider."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.integration.conftest import StartWeir
from tests.java.config_tool import ADMIN
from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker, pytest.mark.oracle]

SOURCE: Final = Path(__file__).parents[1] / "go" / "quotas"
BUILD_S: Final = 900
ASK_S: Final = 60
PREFIXES: Final = {"client-id-prefix=etl-": 1000, "client-id-prefix=etl-,user=alice": 2000}
CLIENT_IDS: Final = {"client-id=etl-1,user=alice": 3000, "client-id=": 4000}
"""Values of `producer_byte_rate` that the program sets, by entity."""


@pytest.fixture(scope="session")
def quotas_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of `tests/go/quotas`, built."""
    if shutil.which("go") is None:
        pytest.skip("needs Go (golang.org)")
    program = tmp_path_factory.mktemp("go") / "quotas"
    subprocess.run(["go", "build", "-o", program, "."], cwd=SOURCE, check=True, timeout=BUILD_S)
    return program


def test_go_libraries_alter_and_describe_quotas_also_of_prefixes(
    kafka_cluster: StartCluster, start_weir: StartWeir, quotas_program: Path
) -> None:
    weir = start_weir(kafka_cluster("3.9.1").bootstrap, "# ours\n", options=ADMIN)
    for library in ("kadm", "sarama"):
        run = [quotas_program, library, weir.bootstrap]
        said = subprocess.run(run, check=True, timeout=ASK_S, capture_output=True, text=True).stdout
        found = [json.loads(line) for line in said.splitlines()]
        assert found == [PREFIXES | CLIENT_IDS, PREFIXES, CLIENT_IDS, {}], library
    assert weir.quota_file.read_text() == "# ours\n"
