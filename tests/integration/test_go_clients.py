"""Quotas that other people's tools set over Kafka's protocol, by the libraries of rpk and of Terraform."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.integration.conftest import StartWeir
from tests.integration.go_programs import go_programs
from tests.java.config_tool import ADMIN
from tests.kafka.fixtures import StartCluster

__all__ = ["go_programs"]  # a fixture

pytestmark = [pytest.mark.broker, pytest.mark.oracle]

ASK_S: Final = 60
PREFIXES: Final = {"client-id-prefix=etl-": 1000, "client-id-prefix=etl-,user=alice": 2000}
CLIENT_IDS: Final = {"client-id=etl-1,user=alice": 3000, "client-id=": 4000}
"""Values of `producer_byte_rate` that the program sets, by entity."""


def test_go_libraries_alter_and_describe_quotas_also_of_prefixes(
    kafka_cluster: StartCluster, start_weir: StartWeir, go_programs: Path
) -> None:
    weir = start_weir(kafka_cluster("3.9.1").bootstrap, "# ours\n", options=ADMIN)
    for library in ("kadm", "sarama"):
        run = [go_programs / "quotas", library, weir.bootstrap]
        said = subprocess.run(run, check=True, timeout=ASK_S, capture_output=True, text=True).stdout
        found = [json.loads(line) for line in said.splitlines()]
        assert found == [PREFIXES | CLIENT_IDS, PREFIXES, CLIENT_IDS, {}], library
    assert weir.quota_file.read_text() == "# ours\n"
