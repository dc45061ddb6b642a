"""TLS on either side, both and none, with SASL inside and without, before a broker that has all of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.clients import Client, KafkaPython, Librdkafka, create_topic, create_topics, sasl
from tests.clients.exchange import part, some_messages
from tests.clients.sasl import Login
from tests.integration.conftest import StartWeir
from tests.integration.with_sasl import CONSUMED, GENEROUS_TO_ALL, PRODUCED, Front, Sharer, assert_untold
from tests.integration.with_tls import VERSION, Place
from tests.java.records import Exchange, JavaRecords
from tests.kafka.sasl import ALICE, BOB, ODD, SCRAM_256, SCRAM_512

pytestmark = [pytest.mark.broker]

QUOTA: Final = 200_000
"""bytes/s"""
MESSAGES: Final = [b"%06d" % number + b"x" * 9_994 for number in range(140)]
"""1.4 MB."""
BURST: Final = 2 * QUOTA
"""Two windows of a second, with quota_window_num=2."""
FEW: Final = some_messages(20, 500)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="weir-tls-") as directory, Place(Path(directory)) as found:
        yield found


@pytest.mark.core
def test_a_user_by_certificate_is_held_to_its_quota_with_tls_on_both_sides(
    start_weir: StartWeir, place: Place, topic: str
) -> None:
    quotas = f'[[quota]]\nuser = "alice"\nproducer_byte_rate = {QUOTA}\n'
    options = (*place.listener(), *place.mutual(), *place.upstream(), "--set", "quota_window_num=2")
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


def test_tls_works_towards_clients_towards_brokers_or_on_neither_side(
    start_weir: StartWeir, topic: str, place: Place
) -> None:
    sides = {
        "clients": (place.plain, place.listener(), place.client()),
        "brokers": (place.tls, place.upstream(), {}),
        "nobody": (place.plain, (), {}),
    }
    create_topics(place.plain, [f"{topic}-{towards}" for towards in sides])
    client = Librdkafka()
    for towards, (upstream, options, config) in sides.items():
        with part(towards):
            name, weir = f"{topic}-{towards}", start_weir(upstream, options=options)
            client.produce(weir.bootstrap, name, MESSAGES[:20], config=config)
            assert client.consume(weir.bootstrap, name, 20, config=config).values == MESSAGES[:20]


# SASL inside


SASL_SSL: Final = {"security.protocol": "SASL_SSL"}


@pytest.mark.parametrize("certificate", [None, "Carol"])
def test_users_who_log_in_by_sasl_inside_tls_are_charged(
    start_weir: StartWeir, topic: str, place: Place, tmp_path: Path, certificate: str | None
) -> None:
    """Once with TLS on both sides; once, towards a plain listener of the broker's, with certificates that say
    carol: SASL's names count.
    """
    upstream, options = (place.sasl, place.mutual()) if certificate else (place.sasl_tls, place.trusting())
    front = Front(start_weir, upstream, tmp_path, GENEROUS_TO_ALL, *place.listener(), *options)

    def librdkafka() -> list[bytes]:
        login = sasl.librdkafka(Login(SCRAM_256, ODD))
        return exchange(Librdkafka(), login | place.client(certificate) | SASL_SSL)

    def python() -> list[bytes]:
        login = sasl.python(Login(SCRAM_512, ALICE))
        return exchange(KafkaPython(), login | place.python(certificate) | {"security_protocol": "SASL_SSL"})

    def exchange(client: Client, config: Mapping[str, str]) -> list[bytes]:
        name, count = named(client.name), len(FEW)
        with client.running() as running:
            running.produce(front.bootstrap, name, FEW, client_id=client.name, config=config)
            return running.consume(front.bootstrap, name, count, client_id=client.name, config=config).values

    def java() -> list[bytes]:
        login = sasl.java(Login(SCRAM_256, BOB)) | {"client.id": "java"}
        config = login | place.java(certificate) | SASL_SSL
        (read,) = JavaRecords(VERSION, front.bootstrap).run(Exchange(named("java"), FEW, config))
        return read

    def named(client: str) -> str:
        name = f"{topic}-{client}"
        create_topic(place.plain, name)
        return name

    with ThreadPoolExecutor() as pool:
        visits = [pool.submit(visit) for visit in (librdkafka, python, java)]
        assert [visit.result() for visit in visits] == [FEW] * len(visits)
    charged = front.charged()
    clients = {"librdkafka": ODD, "kafka-python": ALICE, "java": BOB}
    assert set(charged) == {Sharer(user.name, client) for client, user in clients.items()}
    for of in charged.values():
        assert min(of[PRODUCED], of[CONSUMED]) > sum(map(len, FEW))
    assert_untold(front, [])
