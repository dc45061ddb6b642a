"""Quotas of users: no number of connections and no new authentication is a way around them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.clients import Librdkafka, create_topic, sasl
from tests.clients.exchange import some_messages
from tests.clients.sasl import Login
from tests.integration.conftest import StartWeir
from tests.integration.with_sasl import PRODUCED, Front, Sharer, assert_untold
from tests.kafka.fixtures import StartCluster
from tests.kafka.sasl import BOB, ODD, REAUTHENTICATE_MS, SCRAM_512
from tests.proxy.metrics_page import Page
from tests.raw import NEW, produce
from tests.raw.sasl import SaslConnection

pytestmark = [pytest.mark.broker, pytest.mark.measured]

VERSION = "3.9.1"
QUOTA = 300_000
"""bytes/s"""
WINDOW_S = 3
WINDOW = ("--set", f"quota_window_num={WINDOW_S}")
BURST = WINDOW_S * QUOTA
"""What may be spent at once from cold."""
UNTIL_S = 12.0
SIZE = 3_000
TOLERANCE = 0.2
QUOTAS = "".join(
    f"[[quota]]\n{entity}\nproducer_byte_rate = {rate}\n"
    for entity, rate in {
        'user = "alice"': QUOTA,
        'user = "bob"': QUOTA,
        f'user = "{ODD.name}"': QUOTA,
    }.items()
)


def test_reauthentication_keeps_the_budget_and_the_traffic(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path
) -> None:
    """KIP-368 under traffic: bob's connection stays the same one. A library does it as well.

    What is in flight when the session's lifetime ends costs librdkafka its connection, as it does at a broker
    with quotas of its own.
    """
    cluster = kafka_cluster(VERSION)
    of_library = f"{topic}-library"
    for name in (topic, of_library):
        create_topic(cluster.bootstrap, name)
    front = Front(start_weir, cluster, tmp_path, QUOTAS, *WINDOW)
    before = front.admin.metrics()
    with ThreadPoolExecutor() as pool:
        library = pool.submit(library_writes, front, of_library)
        with SaslConnection(front.broker, "bob's") as connection:
            charges, times = write_and_renew(connection, topic)
        messages, seconds = library.result()
    assert times >= 3
    assert QUOTA * UNTIL_S / 2 < sum(charges) < BURST + QUOTA * UNTIL_S * (1 + TOLERANCE)
    steady_s = (len(messages) * SIZE - BURST) / QUOTA
    assert steady_s * (1 - TOLERANCE) < seconds < 2 * steady_s
    after = front.admin.settled()
    opened = after["weir_sessions_opened_total"] - before["weir_sessions_opened_total"]
    assert opened + times < logins(after) + 1, "librdkafka has renewed its own, too"
    charged = front.charged()
    assert set(charged) == {(BOB.name, ""), (ODD.name, "")}
    assert charged[Sharer(BOB.name, "")][PRODUCED] == sum(charges)
    assert Librdkafka().consume(cluster.bootstrap, of_library, len(messages)).values == messages
    assert_untold(front, [])


def write_and_renew(connection: SaslConnection, topic: str) -> tuple[list[int], int]:
    """Produce as bob, wait as told, and authenticate anew in time, in every shape. Returns what each request
    cost, and how often it did.
    """
    request = produce(NEW, "bob's", topic, SIZE)
    connection.log_in(SCRAM_512, *BOB)
    began = renewed = time.monotonic()
    charges, times = list[int](), 0
    while (now := time.monotonic()) < began + UNTIL_S:
        if now > renewed + REAUTHENTICATE_MS / 2000:
            connection.log_in(SCRAM_512, *BOB, version=(None, 0, 1, 2)[times % 4])
            renewed, times = time.monotonic(), times + 1
        connection.send(request.frame)
        outcome = request.outcome(connection.receive())
        charges.append(outcome.charged_bytes)
        time.sleep(outcome.throttle_ms / 1000)  # as clients do since KIP-219
    return charges, times


def library_writes(front: Front, topic: str) -> tuple[list[bytes], float]:
    """librdkafka writes as the one with the odd name. Returns what, and in which time."""
    messages = some_messages(int((BURST + QUOTA * UNTIL_S) / SIZE), SIZE)
    options = sasl.librdkafka(Login(SCRAM_512, ODD)) | {"batch.num.messages": 10, "max.in.flight": 1}
    done = Librdkafka().produce(front.bootstrap, topic, messages, config=options)
    return messages, done.seconds


def logins(page: Page) -> float:
    """How often somebody has authenticated with SCRAM-SHA-512, for the first time or anew."""
    label = ("mechanism", SCRAM_512), ("result", "success")
    return page.rows("weir_authentications_total").get(frozenset(label), 0)
