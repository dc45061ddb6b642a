"""Real clients, Weir and real brokers keep to the protocol, as `weir verify` judges recorded bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.integration.known_findings import complaints, missing
from tests.integration.mutable import RELEASES
from tests.integration.recorded import answered, findings, recording
from tests.integration.sessions import QUOTAS, SESSIONS, TRANSACTIONS
from tests.kafka.fixtures import StartCluster
from tests.kafka.jars import version_tuple

pytestmark = [pytest.mark.broker]

APIS: Final = {
    "ApiVersions",
    "Metadata",
    "CreateTopics",
    "DeleteTopics",
    "Produce",
    "Fetch",
    "JoinGroup",
    "OffsetCommit",
}
TRANSACTIONAL: Final = {"InitProducerId", "EndTxn"}


def marks(client: str, version: str) -> list[pytest.MarkDecorator]:
    if client in {"kafka-python", "aiokafka"}:
        return [pytest.mark.oracle]
    return [pytest.mark.core] if (client, version) == ("librdkafka", "3.9.1") else []


PAIRS: Final = [
    pytest.param(client, version, id=f"{client}-{version}", marks=marks(client, version))
    for version in RELEASES
    for client in SESSIONS
]


@pytest.mark.parametrize(("client", "version"), PAIRS)
def test_weirs_bytes_have_no_finding_and_those_of_its_peers_are_known(
    kafka_cluster: StartCluster, topic: str, tmp_path: Path, client: str, version: str
) -> None:
    cluster = kafka_cluster(version)
    with recording(cluster.bootstrap, QUOTAS, tmp_path) as recorded:
        SESSIONS[client](cluster, recorded.bootstrap, topic)
    front, back = findings(recorded.front), findings(recorded.back)
    assert complaints(client, front, back) == []
    assert missing(client, version, front) == []
    said = answered(recorded.front)
    assert set(said) >= APIS, "the session leaves out a part"
    assert version_tuple(version) < TRANSACTIONS or set(said) >= TRANSACTIONAL
    assert {"Produce", "Fetch"} <= {api for api, longest_ms in said.items() if longest_ms}
    assert not any(answered(recorded.back).values()), "brokers throttle, too"
