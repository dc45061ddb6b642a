"""Replication listeners: requests and responses between brokers pass unchanged."""

from __future__ import annotations

from typing import Final

import pytest

from tests.matrix import in_one_test
from tests.protocol.generate import sample
from tests.proxy.broker_versions import broker_of
from tests.proxy.playbook import Playbook
from tests.proxy.wire import new_connection
from tests.wire.frames import request, response, unknown_request, unknown_response
from weir.protocol import messages as m
from weir.protocol.api import ApiKey
from weir.protocol.codec import request_type, response_type
from weir.protocol.values import schema_of
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import FOR_CLIENTS, Plans
from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable

KAFKA: Final = frozenset({"kafka"})
OURS: Final = "__weir_quotas"
OLD: Final = (0, 11)
"""A release whose versions uplift raises."""
NEWER: Final = 99
"""A version that no schema describes."""
READ: Final = [key for key in FOR_CLIENTS if key != ApiKey.API_VERSIONS]
CASES: Final = [(key, version) for key in READ for version in schema_of(request_type(key)).versions]
MUTATIONS: Final = QuotaTable({(Entity(DEFAULT), QuotaKey.CONTROLLER_MUTATION_RATE): 0.001})


def connection(
    user: str = "kafka", brokers: frozenset[str] | None = KAFKA, table: QuotaTable | None = None
) -> Connection:
    """A connection at a replication listener of a Weir with topics of its own."""
    plans = Plans(
        Counters(),
        manages_quotas=True,
        protected=ProtectedTopics((OURS,), ()),
        replication=brokers is not None,
    )
    session = new_connection(table, plans=plans, brokers=brokers)
    session.client.become(user)
    return session


def test_a_broker_is_a_principal_of_super_users_at_a_replication_listener() -> None:
    for user, brokers, is_broker in (
        ("kafka", KAFKA, True),
        ("mallory", KAFKA, False),
        ("mallory", frozenset[str](), True),
        ("kafka", None, False),
    ):
        assert connection(user, brokers).client.is_broker is is_broker, (user, brokers)
        assert new_connection(brokers=brokers).client.is_broker is (brokers == frozenset())


@in_one_test
@pytest.mark.parametrize(("key", "version"), CASES, ids=lambda value: str(value))
def test_responses_with_addresses_pass_unchanged_between_brokers(key: ApiKey, version: int) -> None:
    asked = m.ProduceRequest(acks=1) if key == ApiKey.PRODUCE else request_type(key)()
    with Playbook(connection=connection()) as play:
        play.relays(request(asked, version), response(sample(response_type(key), version), version))
        assert play.connection.addresses.address_book.nodes == {}


@in_one_test
@pytest.mark.parametrize("version", list(schema_of(m.ApiVersionsResponse).versions))
def test_api_versions_pass_unchanged_between_brokers(version: int) -> None:
    entry = m.ApiVersionsResponse.ApiVersion
    told = [
        entry(api_key=key, min_version=both.min, max_version=both.max) for key, both in broker_of(OLD).items()
    ]
    told += [entry(api_key=int(ApiKey.ENVELOPE), max_version=NEWER), entry(api_key=1234, max_version=NEWER)]
    told += [entry(api_key=int(ApiKey.PRODUCE), max_version=NEWER)]
    with Playbook(connection=connection()) as play:
        for number in (1, 2):
            answer = response(m.ApiVersionsResponse(api_keys=told), version, number)
            play.relays(request(m.ApiVersionsRequest(), version, number), answer)
        assert play.connection.plans.broker is not None
        assert play.connection.plans.broker[1234].max == NEWER
        assert play.connection.plans.replication


@in_one_test
@pytest.mark.parametrize(
    "key",
    [ApiKey.FETCH, ApiKey.API_VERSIONS, ApiKey.CREATE_TOPICS, ApiKey.ENVELOPE],
    ids=lambda key: key.name,
)
def test_versions_that_weir_cannot_read_pass_for_brokers_only(key: ApiKey) -> None:
    with Playbook(connection=connection()) as play:
        play.relays(unknown_request(int(key), NEWER), unknown_response())
    with Playbook(connection=connection("mallory")) as play:
        play.client(unknown_request(int(key), NEWER))
        play.violation(CloseReason.REQUEST_VERSION_UNKNOWN)


def test_envelopes_pass_for_brokers_only() -> None:
    envelope = request(m.EnvelopeRequest(request_data=b"request", client_host_address=b"\x7f\x00\x00\x01"), 0)
    with Playbook(connection=connection()) as play:
        play.relays(envelope, response(m.EnvelopeResponse(response_data=b"response"), 0))
        assert play.connection.plans[ApiKey.ENVELOPE, 0].requests == 1
    for user, brokers in (("mallory", KAFKA), ("kafka", None)):
        with Playbook(connection=connection(user, brokers)) as play:
            play.client(envelope)
            play.violation(CloseReason.REQUEST_VERSION_UNKNOWN)


def test_brokers_change_protected_topics_at_replication_listeners() -> None:
    created = m.CreateTopicsRequest(
        topics=[m.CreateTopicsRequest.CreatableTopic(name=OURS, num_partitions=1, replication_factor=1)]
    )
    with Playbook(connection=connection()) as play:
        play.relays(request(created, 5), response(m.CreateTopicsResponse(), 5))


def test_metadata_that_a_query_answers_has_the_brokers_addresses_as_told() -> None:
    """A mutation quota has Weir ask Metadata itself, to find topics that are created automatically."""
    asked = m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name="new")], allow_auto_topic_creation=True
    )
    node = m.MetadataResponse.MetadataResponseBroker(node_id=7, host="kafka-7", port=9093)
    topic = m.MetadataResponse.MetadataResponseTopic(error_code=3, name="new")
    answer = m.MetadataResponse(brokers=[node], topics=[topic])
    with Playbook(connection=connection("mallory", table=MUTATIONS)) as play:
        play.relays(request(asked, 9), response(answer, 9))
        assert play.connection.addresses.address_book.nodes == {}
