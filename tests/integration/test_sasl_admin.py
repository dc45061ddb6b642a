"""Admin clients that authenticate: what is the brokers' passes, what is limited is limited by user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients import Librdkafka, create_topic, sasl
from tests.clients.admin import Step
from tests.clients.exchange import some_messages
from tests.clients.sasl import Login
from tests.integration.conftest import StartWeir
from tests.integration.weir_log import assert_no_complaint
from tests.integration.with_sasl import GENEROUS_TO_ALL, Front, Sharer, assert_untold
from tests.java.admin import JavaAdmin
from tests.kafka.fixtures import StartCluster
from tests.kafka.sasl import ALICE, BOB, PLAIN, SCRAM_256, SCRAM_512, User, upsert_scram
from tests.raw.sasl import SaslConnection
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

pytestmark = [pytest.mark.broker]

VERSION = "3.9.1"
NEWCOMER = User("carol, c=c", "carol-Pw-6f0e17")
MUTATIONS = """
[[quota]]
user = "bob"
controller_mutation_rate = 0.01
"""
PARTITIONS = 5


def test_a_scram_user_created_through_weir_authenticates_and_is_charged(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path
) -> None:
    """SCRAM credentials are not Weir's (KIP-554): they are altered and described at the broker."""
    cluster = kafka_cluster(VERSION)
    create_topic(cluster.bootstrap, topic)
    front = Front(start_weir, cluster, tmp_path, GENEROUS_TO_ALL)
    options: dict[str, Any] = {"bootstrap.servers": front.bootstrap, "log_level": 2} | sasl.librdkafka(
        Login(PLAIN, ALICE)
    )
    upsert_scram(AdminClient(options), [NEWCOMER])
    with SaslConnection(front.broker) as connection:
        connection.log_in(SCRAM_256, *ALICE)
        wanted = [DescribeUserScramCredentialsRequest.UserName(name=NEWCOMER.name)]
        request = DescribeUserScramCredentialsRequest(users=wanted)
        (told,) = connection.ask(request, DescribeUserScramCredentialsResponse, 0).results
    assert (told.user, len(told.credential_infos)) == (NEWCOMER.name, 2)
    messages, config = some_messages(10, 100), sasl.librdkafka(Login(SCRAM_512, NEWCOMER))
    Librdkafka().produce(front.bootstrap, topic, messages, client_id="new", config=config)
    assert set(front.charged()) == {Sharer(NEWCOMER.name, "new")}
    assert_untold(front, [NEWCOMER.password.encode()])
    assert_no_complaint(front.weir.log)


def test_topics_created_by_a_user_are_limited_for_any_client_id(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path
) -> None:
    """By Java's AdminClient, and by requests of ours."""
    cluster = kafka_cluster(VERSION)
    front = Front(start_weir, cluster, tmp_path, MUTATIONS)
    config = sasl.java(Login(PLAIN, BOB)) | {"client.id": "of-bob"}
    names = [f"{topic}-{number}" for number in range(4)]
    steps = [Step("create", {name: PARTITIONS}, retry=False) for name in names[:2]]
    outcomes = JavaAdmin(VERSION, front.bootstrap, config).run(*steps)
    errors = [outcome.errors[name] for name, outcome in zip(names, outcomes, strict=False)]
    assert errors == ["", "ThrottlingQuotaExceededException"]
    assert created(front, BOB, SCRAM_512, names[2]) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert created(front, ALICE, SCRAM_256, names[3]) == ErrorCode.NONE
    assert_untold(front, [])


def created(front: Front, user: User, mechanism: str, name: str) -> int:
    """Have a topic created, with a client-id of the topic's name; the error code."""
    wanted = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
    with SaslConnection(front.broker, name) as connection:
        connection.log_in(mechanism, *user)
        (topic,) = connection.ask(request, CreateTopicsResponse, 7).topics
    return topic.error_code
