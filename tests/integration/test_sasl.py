"""Every mechanism with every client that speaks it, through Weir: records arrive, and the right user pays.

Release 3.9.1 meets all of them, the others Java and librdkafka with every mechanism and the rest with one.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients import Aiokafka, KafkaPython, Librdkafka, create_topic, sasl
from tests.clients.java_records import Exchange, JavaRecords
from tests.clients.sasl import Login
from tests.clients.test_clients import some_messages
from tests.integration.test_records import assert_no_complaint
from tests.integration.with_sasl import CONSUMED, GENEROUS_TO_ALL, PRODUCED, Front, Sharer, assert_untold
from tests.kafka.sasl import ALICE, BOB, OAUTHBEARER, ODD, PLAIN, SCRAM_256, SCRAM_512, User, mechanisms

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients import Client
    from tests.integration.conftest import StartWeir
    from tests.kafka import Cluster
    from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker]

VERSIONS = ["0.10.2.2", "2.8.2", "3.9.1", "4.2.0"]
COUNT, SIZE = 20, 500
SECRET = {"sasl.password", "sasl_plain_password", "sasl_oauth_token"}
COMES_WITH = {
    PLAIN: ALICE,
    SCRAM_256: ODD,
    SCRAM_512: BOB,
    OAUTHBEARER: User("jörg, o=ps", "unused"),
}
EXCEPTIONS = {
    (
        "kafka-python",
        SCRAM_256,
    ): ALICE,  # release 3.0.12 does not escape names in SCRAM: the broker refuses ODD
    ("java", OAUTHBEARER): User("zoe", "unused"),  # its name is part of a JAAS configuration
}


def login_of(client: str, mechanism: str) -> Login:
    """Who comes."""
    return Login(mechanism, EXCEPTIONS.get((client, mechanism), COMES_WITH[mechanism]))


def visitors(version: str) -> list[tuple[Client, str]]:
    """Who comes to a release, and how. To 0.10.2.2 aiokafka cannot; see there."""
    known = mechanisms(version)
    found: list[tuple[Client, str]] = [(Librdkafka(), mechanism) for mechanism in known]
    if version == "3.9.1":
        found += [(client, mechanism) for client in (KafkaPython(), Aiokafka()) for mechanism in known]
    elif version == "0.10.2.2":
        found.append((KafkaPython(), PLAIN))
    else:
        found += [(KafkaPython(), SCRAM_512), (Aiokafka(), OAUTHBEARER)]
    return found


class Scene:
    """One Weir, and clients that come at once, each with a client-id of its own."""

    def __init__(self, cluster: Cluster, front: Front, topic: str) -> None:
        self.expected: set[Sharer] = set()
        self.messages = some_messages(COUNT, SIZE)
        self.secrets: list[bytes] = []
        self._cluster, self._front, self._topic = cluster, front, topic

    def visit(self, client: Client, mechanism: str) -> None:
        """A client sends records, and reads them."""
        login = login_of(client.name, mechanism)
        name = self._meet(client.name, login)
        rd = isinstance(client, Librdkafka)
        options: dict[str, Any] = sasl.librdkafka(login) if rd else sasl.python(login)
        self.secrets += [str(options[key]).encode() for key in options if key in SECRET]
        bootstrap, client_id = self._front.bootstrap, name.removeprefix(f"{self._topic}-")
        client.produce(bootstrap, name, self.messages, client_id=client_id, config=options)
        read = client.consume(bootstrap, name, COUNT, client_id=client_id, config=options)
        assert read.values == self.messages, name

    def visit_with_java(self, version: str) -> None:
        """Java's clients do the same, one mechanism after the other."""
        exchanges = []
        for mechanism in mechanisms(version):
            login = login_of("java", mechanism)
            name = self._meet("java", login)
            client_id = name.removeprefix(f"{self._topic}-")
            exchanges.append(Exchange(name, self.messages, sasl.java(login) | {"client.id": client_id}))
        read = JavaRecords(version, self._front.bootstrap).run(*exchanges)
        assert read == [self.messages] * len(exchanges)

    def _meet(self, client: str, login: Login) -> str:
        client_id = f"{client}-{login.mechanism}"
        self.expected.add(Sharer(login.user.name, client_id))
        name = f"{self._topic}-{client_id}"
        create_topic(self._cluster.bootstrap, name)
        return name


@pytest.mark.parametrize("version", VERSIONS)
def test_records_arrive_over_sasl_and_the_authenticated_user_is_charged(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path, version: str
) -> None:
    cluster = kafka_cluster(version, with_sasl=True)
    front = Front(start_weir, cluster, tmp_path, GENEROUS_TO_ALL)
    scene = Scene(cluster, front, topic)
    with ThreadPoolExecutor(4) as pool:
        visits = [pool.submit(scene.visit_with_java, version)]
        visits += [pool.submit(scene.visit, client, mechanism) for client, mechanism in visitors(version)]
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
