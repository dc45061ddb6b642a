"""Fetch sessions of Java's consumers (KIP-227) outlast hundreds of fetches that get no records."""

from __future__ import annotations

from typing import Final

import pytest

from tests.clients import Librdkafka, create_topic
from tests.clients.exchange import some_messages
from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.integration.weir_log import assert_no_complaint
from tests.java.fetches import Fetched, java_fetches
from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker, pytest.mark.oracle]

SHARES: Final = ((0, 1), (2, 3), (4, 5), (6, 7))
"""Each consumer's partitions."""
COUNT, SIZE = 150, 100
"""Records in each partition, and the bytes of a record's value."""
SMALL_FETCHES: Final = {"max.partition.fetch.bytes": "400"}
"""Two records of a partition at a time; each is a batch of its own."""
QUOTA: Final = """
[[quota]]
user = "<default>"
consumer_byte_rate = 10000
"""
"""Far below what the consumers could read; the records are worth 25 s."""
WINDOW: Final = ("--quota-window-num", "2")
HUNDREDS: Final = 200
PATIENCE_S: Final = 150.0


@pytest.mark.parametrize("version", ["2.8.2", "4.2.0"])
def test_javas_fetch_sessions_outlast_hundreds_of_responses_without_records(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    """With topic names in the requests (2.8.2) and with topic ids (4.2.0)."""
    bootstrap, metrics = kafka_cluster(version).bootstrap, Admin()
    written = write(bootstrap, topic)
    weir = start_weir(bootstrap, QUOTA, options=(*WINDOW, *metrics.options))
    seen = java_fetches(version, weir.bootstrap, topic, SHARES, COUNT, SMALL_FETCHES, PATIENCE_S)
    assert seen.records == written
    assert resets(seen) == []
    counts = seen.sessions.counts
    assert counts["throttled"] > HUNDREDS, counts
    assert counts["unchanged"] > HUNDREDS, counts  # fetches after responses without records
    throttles = metrics.metrics().rows("weir_quota_throttles_total").values()
    assert sum(throttles) >= counts["throttled"]
    assert_no_complaint(weir.log)


def test_javas_log_shows_every_full_fetch_of_a_consumer_that_gets_no_session(
    fresh_cluster: StartCluster, topic: str
) -> None:
    """`resets` finds them: the broker remembers no sessions."""
    settings = {"max.incremental.fetch.session.cache.slots": "0"}
    bootstrap = fresh_cluster("2.8.2", settings=settings).bootstrap
    written = write(bootstrap, topic)
    seen = java_fetches("2.8.2", bootstrap, topic, SHARES, COUNT, SMALL_FETCHES, PATIENCE_S)
    assert seen.records == written
    assert seen.sessions.counts["created"] == 0
    assert len(resets(seen)) > HUNDREDS


def write(bootstrap: str, topic: str) -> dict[int, list[tuple[int, bytes]]]:
    """Fill a new topic; return what must be read, (offset, value) by partition."""
    partitions = [partition for share in SHARES for partition in share]
    create_topic(bootstrap, topic, len(partitions))
    written = {}
    for partition in partitions:
        messages = some_messages(COUNT, SIZE, seed=partition)
        Librdkafka().produce(
            bootstrap, topic, messages, partition=partition, config={"batch.num.messages": 1}
        )
        written[partition] = list(enumerate(messages))
    return written


def resets(seen: Fetched) -> list[str]:
    """What the consumers logged of sessions that were reset, and of sessions that they did not get."""
    counts, strange = seen.sessions
    again = ["a full fetch again"] * (counts["began"] - len(SHARES))
    missing = ["a session less than consumers"] * (len(SHARES) - counts["created"])
    return [*strange, *again, *missing]
