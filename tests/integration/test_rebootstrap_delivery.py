"""Clients with default retries that get REBOOTSTRAP_REQUIRED (KIP-1102), compared with a plain drain.

`ROUNDS=5` in the environment for more rounds. The figures are printed; docs/how-to/operations.md has them.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.clients import create_topic
from tests.integration.rebootstrap_tap import RebootstrapTap
from tests.integration.takeovers import Generations
from tests.integration.tap import HOST
from tests.integration.topic_contents import records_in
from tests.integration.traffic import until
from tests.integration.weir import BROKERS, Weir
from tests.java import paced
from tests.java.paced import Pace, Sent
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker]

ROUNDS: Final = int(os.environ.get("ROUNDS", "1"))
RELEASE: Final = "4.4.0"
RECORDS_MAX: Final = 9000
RATE: Final = 100.0
PARTITIONS: Final = 2
BEFORE: Final = 100
"""Number of Produce requests before the drain begins."""
GAP_MAX_S: Final = 3.0
"""Time (s) for which clients go on after a drain."""
AFTER: Final = 50
"""Number of Produce requests that show that a client is back."""
REFRESH_MS: Final = 1000
"""How often clients ask for metadata; 5 minutes by default, longer than a drain."""
BEHIND_THE_TAP: Final = ("--advertised-host", HOST)
PATIENCE_S: Final = 60.0
DELAY_S: Final = 0.03
"""Latency (s) that the tap adds to each response, so that requests are in flight."""

Client = Callable[[str, Pace], list[Sent]]
"""Function (bootstrap servers, load) that produces, with the client's default acks and retries."""
Drain = Callable[[bool], float]
"""Function that drains the Weir of the clients; True to tell them to bootstrap again before that. Returns the
monotonic time (s) up to which acknowledgements count, so that the gap of clients that were told has no drain.
"""


def java(bootstrap: str, pace: Pace) -> list[Sent]:
    config = {"bootstrap.servers": bootstrap, "metadata.max.age.ms": str(REFRESH_MS)}
    return paced.produce(RELEASE, config, pace)


def librdkafka(bootstrap: str, pace: Pace, *, idempotent: bool = False) -> list[Sent]:
    options = {
        "bootstrap.servers": bootstrap,
        "topic.metadata.refresh.interval.ms": REFRESH_MS,
        "log_level": 2,
    }
    producer = Producer({**options, "enable.idempotence": idempotent})
    found: list[Sent] = []

    def note(number: int, error: object) -> None:
        found[number] = Sent(found[number].sent_s, time.monotonic(), None if error is None else str(error))

    began_s = time.monotonic()
    for number in range(pace.records):
        if Path(pace.stop).exists():
            break
        while (wait_s := began_s + number / pace.rate - time.monotonic()) > 0:
            producer.poll(min(wait_s, 0.005))
        found.append(Sent(time.monotonic(), None, None))
        producer.produce(
            pace.topic,
            str(number).encode(),
            partition=number % pace.partitions,
            on_delivery=lambda error, _message, number=number: note(number, error),  # type: ignore[misc]
        )
    producer.flush(PATIENCE_S)
    return found


CLIENTS: Final[dict[str, Client]] = {
    "java": java,
    "librdkafka": librdkafka,
    "librdkafka-idempotent": partial(librdkafka, idempotent=True),
}


@contextmanager
def taken_over(cluster: Cluster) -> Iterator[tuple[str, RebootstrapTap, Drain]]:
    """A Weir that another one takes over from: the same addresses are served all the time."""
    with (
        Generations(cluster.bootstrap, options=BEHIND_THE_TAP) as weirs,
        RebootstrapTap(range(weirs.port, weirs.port + 1 + BROKERS), DELAY_S) as tap,
    ):

        def drain(rebootstrap: bool) -> float:
            if rebootstrap:
                tell(tap)
                back = tap.produced + AFTER
                until(lambda: tap.produced >= back, lambda: "records")
            told_s = time.monotonic()
            number = weirs.start()
            assert weirs.ended(number - 1) == 0
            return told_s if rebootstrap else math.inf

        yield f"{HOST}:{weirs.port}", tap, drain


@contextmanager
def replaced(cluster: Cluster) -> Iterator[tuple[str, RebootstrapTap, Drain]]:
    """A Weir that ends, and another one at another bootstrap address, which starts before that."""
    with (
        Weir(cluster.bootstrap, options=BEHIND_THE_TAP) as first,
        RebootstrapTap(range(first.port, first.port + 1 + BROKERS), DELAY_S) as tap,
    ):
        second = Weir(cluster.bootstrap)

        def drain(rebootstrap: bool) -> float:
            second.start()
            tap.refuse()
            if rebootstrap:
                tell(tap)
            assert first.stop() == 0
            return math.inf

        try:
            yield f"{HOST}:{first.port},{second.bootstrap}", tap, drain
        finally:
            second.close()


PLACES: Final = {"taken-over": taken_over, "replaced": replaced}


def tell(tap: RebootstrapTap) -> None:
    """Tell clients to bootstrap again until they ask for metadata once more, without an answer to that."""
    told = tap.told
    tap.telling = True
    until(lambda: tap.told > told, lambda: "a Metadata request")
    tap.telling = False


def stored(cluster: Cluster, topic: str) -> Counter[int]:
    return Counter(
        int(each.value) for records in records_in(cluster.bootstrap, topic).values() for each in records
    )


def figures(sent: list[Sent], found: Counter[int], until_s: float) -> dict[str, object]:
    acked = sorted(each.acked_s for each in sent if each.acked_s is not None and each.acked_s < until_s)
    return {
        "errors": sum(each.error is not None for each in sent),
        "unanswered": sum(each.acked_s is None for each in sent),
        "lost": sum(found[number] == 0 for number in range(len(sent))),
        "twice": sum(count > 1 for count in found.values()),
        "gap_ms": round(1000 * max(later - earlier for earlier, later in pairwise(acked))),
    }


@pytest.mark.parametrize("rebootstrap", [False, True], ids=["drained", "told"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("client", CLIENTS)
def test_default_clients_deliver_every_record_over_a_drain_whether_told_to_bootstrap_again_or_not(
    kafka_cluster: StartCluster, topic: str, tmp_path: Path, client: str, place: str, rebootstrap: bool
) -> None:
    cluster = kafka_cluster(RELEASE, brokers=2)
    for number in range(ROUNDS):
        name = f"{topic}-{number}"
        create_topic(cluster.bootstrap, name, PARTITIONS)
        with PLACES[place](cluster) as (bootstrap, tap, drain), ThreadPoolExecutor(1) as threads:
            stop = tmp_path / name
            pace = Pace(name, PARTITIONS, RECORDS_MAX, RATE, str(stop))
            producing: Future[list[Sent]] = threads.submit(CLIENTS[client], bootstrap, pace)
            try:
                until(lambda: tap.produced >= BEFORE or producing.done(), lambda: "records")  # noqa: B023
                until_s = drain(rebootstrap)
                time.sleep(GAP_MAX_S)  # clients that are not back by then have a gap of this length
            finally:
                stop.touch()
            sent = producing.result(2 * PATIENCE_S)
        found = stored(cluster, name)
        result = figures(sent, found, until_s) | {"told_in_flight": tap.told_in_flight}
        print(json.dumps({"client": client, "place": place, "told": rebootstrap, **result}))
        assert bool(tap.told) == rebootstrap
        assert (result["errors"], result["unanswered"], result["lost"]) == (0, 0, 0)
        if not (client == "librdkafka" and rebootstrap):  # not idempotent, and its requests get no answer
            assert result["twice"] == 0
