"""TLS on either side, both and none, in front of a real broker with a listener that wants certificates."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from cryptography.hazmat.primitives import serialization

from tests.clients import Librdkafka, create_topic
from tests.kafka.cluster import Cluster
from tests.kafka.ports import free_range
from tests.proxy.certificates import HOST, write_ca, write_client, write_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import StartWeir

pytestmark = [pytest.mark.broker]

VERSION: Final = "3.9.1"
QUOTA: Final = 200_000
"""bytes/s"""
MESSAGES: Final = [b"%06d" % number + b"x" * 9_994 for number in range(140)]
"""1.4 MB."""
BURST: Final = 2 * QUOTA
"""Two windows of a second, with --quota-window-num 2."""


class Place:
    """A broker with a plain and a TLS listener, and the files of everybody's certificates."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        port = free_range(3)
        self.plain, self.tls = f"{HOST}:{port}", f"{HOST}:{port + 1}"
        controller = f"{HOST}:{port + 2}"
        self.ca = str(write_ca(directory, "brokers"))
        self.clients_ca = str(write_ca(directory, "clients"))
        self.weirs_ca = str(write_ca(directory))
        settings = {
            "listeners": f"PLAINTEXT://{self.plain},SSL://{self.tls},CONTROLLER://{controller}",
            "controller.quorum.voters": f"0@{controller}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.clients_ca,
            "ssl.client.auth": "required",
        }
        self.cluster = Cluster(VERSION, port=port, settings=settings)

    def _keystore(self) -> Path:
        """Kafka wants PKCS 8."""
        cert, key = write_pair(self._sub("broker"), HOST, ca="brokers")
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        pem = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        store = self._directory / "keystore.pem"
        store.write_bytes(pem + cert.read_bytes())
        return store

    def _sub(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=name, dir=self._directory))

    def listener(self) -> tuple[str, ...]:
        """Weir's options towards clients."""
        cert, key = write_pair(self._sub("listener"), HOST)
        return ("--tls-cert", str(cert), "--tls-key", str(key))

    def mutual(self) -> tuple[str, ...]:
        """More of them."""
        rule = "RULE:^CN=([^,]+),OU=Apps$/$1/L"
        return (
            *("--tls-client-auth", "required", "--tls-client-ca", self.clients_ca),
            *("--ssl-principal-mapping-rules", rule),
        )

    def upstream(self) -> tuple[str, ...]:
        """Weir's options towards the broker."""
        file = str(write_client(self._sub("weir"), "clients", "weir"))
        return ("--upstream-tls", "--upstream-ca", self.ca, "--upstream-cert", file)

    def client(self, name: str | None = None) -> dict[str, str]:
        """A client's options for a TLS listener of Weir's."""
        options = {"security.protocol": "SSL", "ssl.ca.location": self.weirs_ca}
        if name is not None:
            file = str(write_client(self._sub(f"client-{name}"), "clients", name, "Apps"))
            options |= {"ssl.certificate.location": file, "ssl.key.location": file}
        return options


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """One broker for all of these tests."""
    with tempfile.TemporaryDirectory(prefix="weir-tls-") as directory:
        found = Place(Path(directory))
        with found.cluster:
            yield found


def test_a_user_by_certificate_is_held_to_its_quota_with_tls_on_both_sides(
    start_weir: StartWeir, place: Place, topic: str
) -> None:
    quotas = f'[[quota]]\nuser = "alice"\nproducer_byte_rate = {QUOTA}\n'
    options = (*place.listener(), *place.mutual(), *place.upstream(), "--quota-window-num", "2")
    weir = start_weir(place.tls, quotas, options=options)
    create_topic(place.plain, topic)
    client = Librdkafka()
    produced = client.produce(weir.bootstrap, topic, MESSAGES, config=place.client("Alice"))
    at_least_s = (sum(map(len, MESSAGES)) - BURST) / QUOTA
    assert at_least_s * 0.8 < produced.seconds < at_least_s * 1.6 + 2
    assert produced.throttle_max_ms > 0
    free = place.client("Bob")
    consumed = client.consume(weir.bootstrap, topic, len(MESSAGES), config=free)
    assert consumed.values == MESSAGES
    assert client.produce(weir.bootstrap, topic, MESSAGES[:50], config=free).throttle_max_ms == 0


@pytest.mark.parametrize("sides", ["clients", "brokers", "neither"])
def test_either_side_may_be_plain(start_weir: StartWeir, topic: str, place: Place, sides: str) -> None:
    options = {"clients": place.listener(), "brokers": place.upstream(), "neither": ()}[sides]
    weir = start_weir(place.tls if sides == "brokers" else place.plain, options=options)
    create_topic(place.plain, topic)
    config = place.client() if sides == "clients" else {}
    client = Librdkafka()
    client.produce(weir.bootstrap, topic, MESSAGES[:20], config=config)
    assert client.consume(weir.bootstrap, topic, 20, config=config).values == MESSAGES[:20]


def test_a_broker_that_wants_a_certificate_is_understood(start_weir: StartWeir, place: Place) -> None:
    weir = start_weir(place.tls, options=("--upstream-tls", "--upstream-ca", place.ca))
    (line,) = [line for line in weir.log.splitlines() if "does not tell its brokers" in line]
    assert "upstream_cert" in line
