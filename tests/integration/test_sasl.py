"""Every mechanism with every client that speaks it, through Weir: records arrive, and the right user pays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.clients import Aiokafka, Client, KafkaPython, Librdkafka, create_topics, sasl
from tests.clients.exchange import part, some_messages
from tests.clients.sasl import Login
from tests.integration.conftest import StartWeir
from tests.integration.weir_log import assert_no_complaint
from tests.integration.with_sasl import CONSUMED, GENEROUS_TO_ALL, PRODUCED, Front, Sharer, assert_untold
from tests.java.records import Exchange, JavaRecords
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at
from tests.kafka.sasl import ALICE, BOB, OAUTHBEARER, ODD, PLAIN, SCRAM_256, SCRAM_512, User, mechanisms

pytestmark = [pytest.mark.broker]

VERSIONS = ["0.10.2.2", "4.4.0"]
COUNT, SIZE = 20, 500
SECRET = {"sasl.password", "sasl_plain_password", "sasl_oauth_token"}
COMES_WITH = {PLAIN: ALICE, SCRAM_256: ODD, SCRAM_512: BOB, OAUTHBEARER: User("jörg, o=ps", "unused")}
EXCEPTIONS = {
    (
        "kafka-python",
        SCRAM_256,
    ): ALICE,  # release 3.0.12 does not escape names in SCRAM: the broker refuses ODD
    ("java", OAUTHBEARER): User("zoe", "unused"),  # its name is part of a JAAS configuration
}


def login_of(client: str, mechanism: str) -> Login:
    return Login(mechanism, EXCEPTIONS.get((client, mechanism), COMES_WITH[mechanism]))


def visitors(version: str) -> list[tuple[Client, list[str]]]:
    """Who comes to a release, and how. To 0.10.2.2 aiokafka cannot; see there."""
    known = mechanisms(version)
    found: list[tuple[Client, list[str]]] = [(Librdkafka(), known)]
    if version == "3.9.1":
        return [*found, (KafkaPython(), known), (Aiokafka(), known)]
    if version == "0.10.2.2":
        return [*found, (KafkaPython(), [PLAIN])]
    return [*found, (KafkaPython(), [SCRAM_512]), (Aiokafka(), [OAUTHBEARER])]


class Scene:
    """One Weir, and clients that come at once, with a client-id and a topic for each mechanism."""

    def __init__(self, cluster: Cluster, front: Front, topic: str) -> None:
        self.expected: set[Sharer] = set()
        self.messages = some_messages(COUNT, SIZE)
        self.secrets: list[bytes] = []
        self._cluster, self._front, self._topic = cluster, front, topic

    def visit(self, client: Client, known: list[str]) -> None:
        """A client sends records, and reads them, with one mechanism after the other."""
        names = self._meet(client.name, known)
        with client.running() as running:
            for mechanism, (client_id, name) in names.items():
                with part(client_id):
                    self._exchange(running, login_of(client.name, mechanism), client_id, name)

    def visit_with_java(self, version: str) -> None:
        exchanges = [
            Exchange(name, self.messages, sasl.java(login_of("java", mechanism)) | {"client.id": client_id})
            for mechanism, (client_id, name) in self._meet("java", mechanisms(version)).items()
        ]
        with part("java"):
            read = JavaRecords(version, self._front.bootstrap).run(*exchanges)
            assert read == [self.messages] * len(exchanges)

    def _exchange(self, client: Client, login: Login, client_id: str, name: str) -> None:
        rd = isinstance(client, Librdkafka)
        options: dict[str, Any] = sasl.librdkafka(login) if rd else sasl.python(login)
        self.secrets += [str(options[key]).encode() for key in options if key in SECRET]
        bootstrap = self._front.bootstrap
        client.produce(bootstrap, name, self.messages, client_id=client_id, config=options)
        read = client.consume(bootstrap, name, COUNT, client_id=client_id, config=options)
        assert read.values == self.messages

    def _meet(self, client: str, known: list[str]) -> dict[str, tuple[str, str]]:
        ids = {mechanism: f"{client}-{mechanism}" for mechanism in known}
        self.expected |= {Sharer(login_of(client, each).user.name, ids[each]) for each in known}
        names = {mechanism: (each, f"{self._topic}-{each}") for mechanism, each in ids.items()}
        create_topics(self._cluster.bootstrap, [name for _, name in names.values()])
        return names


@pytest.mark.parametrize("version", core_at(VERSIONS, core=("4.4.0",)))
def test_records_arrive_over_sasl_and_the_authenticated_user_is_charged(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path, version: str
) -> None:
    cluster = kafka_cluster(version)
    front = Front(start_weir, cluster, tmp_path, GENEROUS_TO_ALL)
    scene = Scene(cluster, front, topic)
    with ThreadPoolExecutor(4) as pool:
        visits = [pool.submit(scene.visit_with_java, version)]
        visits += [pool.submit(scene.visit, client, known) for client, known in visitors(version)]
        for visit in visits:
            visit.result()
    charged = front.charged()
    assert set(charged) == scene.expected
    too_little = {
        sharer: of
        for sharer, of in charged.items()
        if min(of.get(PRODUCED, 0), of.get(CONSUMED, 0)) < COUNT * SIZE
    }
    assert too_little == {}
    assert front.weir.stop() == 0
    assert_no_complaint(front.weir.log)
    assert_untold(front, scene.secrets)
