"""Quotas that other tools set, by the libraries of rpk and of Terraform, and the producer of Sarama."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.integration.go_programs import go_programs
from tests.integration.topic_contents import records_in
from tests.integration.traffic import create_spread, until
from tests.integration.weir_log import assert_no_complaint
from tests.java.config_tool import ADMIN
from tests.kafka.fixtures import StartCluster

__all__ = ["go_programs"]  # a fixture

pytestmark = [pytest.mark.broker, pytest.mark.oracle]

ASK_S: Final = 60
PREFIXES: Final = {"client-id-prefix=etl-": 1000, "client-id-prefix=etl-,user=alice": 2000}
CLIENT_IDS: Final = {"client-id=etl-1,user=alice": 3000, "client-id=": 4000}
"""Values of `producer_byte_rate` that the program sets, by entity."""
QUOTA: Final = '[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = 2000\n'


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


@pytest.mark.parametrize("version", ["3.9.1", "4.4.0"])
def test_sarama_produces_each_record_once_while_it_is_throttled(
    kafka_cluster: StartCluster,
    start_weir: StartWeir,
    topic: str,
    go_programs: Path,
    version: str,
    tmp_path: Path,
) -> None:
    cluster, admin, stop = kafka_cluster(version), Admin(), tmp_path / "stop"
    create_spread(cluster.bootstrap, topic, [[0], [0]])
    weir = start_weir(cluster.bootstrap, QUOTA, options=admin.options)

    def throttles() -> float:
        return sum(admin.metrics().rows("weir_throttles_total").values())

    run = [str(go_programs / "produce"), weir.bootstrap, topic, str(stop), "sarama"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sarama:
        until(lambda: throttles() > 10, lambda: "throttles")
        stop.touch()
        said, complaints = sarama.communicate(timeout=ASK_S)
    found = sorted(
        int(record.value) for each in records_in(cluster.bootstrap, topic).values() for record in each
    )
    assert (found, complaints) == (list(range(int(said))), "")
    assert_no_complaint(weir.log)
