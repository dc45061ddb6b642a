"""`weir capture` in front of a real broker: clients notice nothing, and the capture has all that was said."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.clients import Librdkafka, create_topic
from tests.clients.exchange import assert_exchanged, assert_group_goes_on, some_messages
from tests.integration.capturing import SUMMARY, CapturingWeir
from tests.integration.weir_log import assert_no_complaint
from tests.kafka.fixtures import StartCluster
from weir.conformance.capture import CaptureReader
from weir.conformance.capture.json_lines import json_lines
from weir.conformance.events import Bytes, Closed, Opened, Side

pytestmark = [pytest.mark.broker]


def test_clients_notice_nothing_and_every_byte_of_theirs_is_in_the_capture(
    kafka_cluster: StartCluster, topic: str, tmp_path: Path
) -> None:
    cluster = kafka_cluster("3.9.1")
    out, messages = tmp_path / "c.weircap", some_messages(500, 1000)
    with CapturingWeir(cluster.bootstrap, out) as weir:
        create_topic(weir.bootstrap, topic)
        assert_exchanged(Librdkafka(), weir.bootstrap, topic, messages)
        create_topic(weir.bootstrap, topic + "-group")
        assert_group_goes_on(Librdkafka(), weir.bootstrap, topic + "-group")
        assert weir.stop() == 0
        assert_no_complaint(weir.log)
        said = [int(number) for number in SUMMARY.findall(weir.log)[0]]
    reader = CaptureReader(out)
    events = list(reader)
    assert [(run.redacted, run.blanked, run.source) for run in reader.runs] == [
        (True, False, cluster.bootstrap)
    ]
    counts = [sum(isinstance(event, Opened) for event in events)]
    counts += [
        sum(len(event.data) for event in events if isinstance(event, Bytes) and event.side is side)
        for side in Side
    ]
    assert said == [*counts, 0]
    assert sum(isinstance(event, Closed) for event in events) == 2 * counts[0]
    lines = [msgspec.json.decode(line) for line in json_lines(events)]
    assert not [line for line in lines if "error" in line or line["event"] == "dropped"]
    requests, responses = (
        Counter((line["connection"], line["api"]) for line in lines if line["event"] == kind)
        for kind in ("request", "response")
    )
    # A client that closes its connection does not wait for the responses to come.
    assert sum((requests - responses).values()) <= counts[0]
    assert not responses - requests
    apis = {api for _connection, api in requests}
    assert {"ApiVersions", "Metadata", "Produce", "Fetch", "JoinGroup", "OffsetCommit"} <= apis
    for side in Side:  # produced by clients, fetched from brokers
        sent = b"".join(event.data for event in events if isinstance(event, Bytes) and event.side is side)
        assert sum(sent.count(message) for message in messages) == len(messages)


def test_blanked_captures_have_no_message_and_decode(
    kafka_cluster: StartCluster, topic: str, tmp_path: Path
) -> None:
    cluster = kafka_cluster("3.9.1")
    out, messages = tmp_path / "c.weircap", some_messages(100, 200)
    with CapturingWeir(cluster.bootstrap, out, "--blank-records") as weir:
        create_topic(weir.bootstrap, topic)
        assert_exchanged(Librdkafka(), weir.bootstrap, topic, messages)
        assert weir.stop() == 0
    reader = CaptureReader(out)
    data = b"".join(event.data for event in reader if isinstance(event, Bytes))
    assert reader.blanked
    assert not any(message[:20] in data for message in messages)
    lines = [msgspec.json.decode(line) for line in json_lines(CaptureReader(out))]
    assert not [line for line in lines if "error" in line]
    assert {"Produce", "Fetch"} <= {line["api"] for line in lines if line["event"] == "response"}
