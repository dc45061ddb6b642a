"""Every field of a response that may hold an address is rewritten, or has a reason to stay.

A new schema with such a field fails here: add a rewrite (`proxy.handlers.addresses`) or a reason, and the row
in docs/background/security.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.protocol.generate import sample
from tests.proxy.playbook import Playbook
from tests.wire.frames import request, response
from weir.protocol.api import ApiKey
from weir.protocol.codec import request_type, response_type
from weir.protocol.errors import EncodeError
from weir.protocol.messages import DescribeClusterResponse, ProduceRequest
from weir.protocol.schema import Field, MessageSchema, api, api_keys
from weir.protocol.values import Message, schema_of

ADDRESS: Final = re.compile(
    r"(?:^|_)(?:address(?:es)?|domain|endpoints?|host(?:s|name)?|ip|listeners?|ports?|racks?|servers?|ur[il]s?|values?)"
    r"(?:_|$)"
)
"""Names of fields that may hold an address. A `value` is text that the schema does not describe."""
REWRITTEN: Final = frozenset(
    {
        "Produce.node_endpoints",
        "Fetch.node_endpoints",
        "Metadata.brokers.host",
        "Metadata.brokers.port",
        "FindCoordinator.host",
        "FindCoordinator.port",
        "FindCoordinator.coordinators.host",
        "FindCoordinator.coordinators.port",
        "DescribeCluster.brokers.host",
        "DescribeCluster.brokers.port",
        "ShareFetch.node_endpoints",
        "ShareAcknowledge.node_endpoints",
    }
)
"""Addresses that clients connect to."""

RACK: Final = "the name of a rack is no address; clients compare it with their own"
CLIENT: Final = "a client's address as the broker sees it: Weir's own"
ACL: Final = "a part of an ACL: tools write it back"
CONTROLLERS: Final = "controllers answer it to each other, brokers do not"
QUORUM: Final = (
    "listeners of controllers: clients do not connect to them, Weir has none, operators ask for them"
)
CONFIG: Final = "a setting: a tool that reads and writes it back would store Weir's address in the broker"
APPLICATION: Final = "an address of a Kafka Streams application, which is no broker"
OWN_TEXT: Final = "a client's own text"
NUMBER: Final = "a number of another thing"

SUBTOPOLOGIES: Final = "StreamsGroupDescribe.groups.topology.subtopologies"
LEFT: Final[Mapping[str, str]] = {
    "Metadata.brokers.rack": RACK,
    "DescribeCluster.brokers.rack": RACK,
    "ConsumerGroupDescribe.groups.members.rack_id": RACK,
    "ShareGroupDescribe.groups.members.rack_id": RACK,
    "StreamsGroupDescribe.groups.members.rack_id": RACK,
    "DescribeGroups.groups.members.client_host": CLIENT,
    "ConsumerGroupDescribe.groups.members.client_host": CLIENT,
    "ShareGroupDescribe.groups.members.client_host": CLIENT,
    "StreamsGroupDescribe.groups.members.client_host": CLIENT,
    "DescribeAcls.resources.acls.host": ACL,
    "DeleteAcls.filter_results.matching_acls.host": ACL,
    "CreateTopics.topics.configs.value": CONFIG,
    "DescribeConfigs.results.configs.value": CONFIG,
    "DescribeConfigs.results.configs.synonyms.value": CONFIG,
    f"{SUBTOPOLOGIES}.state_changelog_topics.topic_configs.value": CONFIG,
    f"{SUBTOPOLOGIES}.repartition_source_topics.topic_configs.value": CONFIG,
    "StreamsGroupDescribe.groups.members.client_tags.value": OWN_TEXT,
    "StreamsGroupDescribe.groups.members.user_endpoint": APPLICATION,
    "StreamsGroupHeartbeat.partitions_by_user_endpoint": APPLICATION,
    "DescribeClientQuotas.entries.values": NUMBER,
    "DescribeCluster.endpoint_type": NUMBER,
    "StreamsGroupHeartbeat.endpoint_information_epoch": NUMBER,
    "DescribeQuorum.nodes.listeners": QUORUM,
    "UpdateRaftVoter.current_leader.host": CONTROLLERS,
    "UpdateRaftVoter.current_leader.port": CONTROLLERS,
    "Vote.node_endpoints": CONTROLLERS,
    "BeginQuorumEpoch.node_endpoints": CONTROLLERS,
    "EndQuorumEpoch.node_endpoints": CONTROLLERS,
    "FetchSnapshot.node_endpoints": CONTROLLERS,
}
"""Fields that stay, and why."""
NUMBERS: Final = {
    path for path in REWRITTEN | set(LEFT) if path.endswith(".port") or LEFT.get(path) == NUMBER
}
"""Fields without text."""
BROKERS: Final = 1
"""DescribeCluster's endpoint type."""
MARK: Final = b"kafka-1.example.org"
PAGE: Final = (Path(__file__).parents[2] / "docs" / "background" / "security.md").read_text("utf-8")


def found() -> dict[str, int]:
    """Fields that may hold an address, with their API keys; of nested ones the outermost."""
    fields: dict[str, int] = {}
    for key in api_keys():
        known = api(key)
        assert known is not None
        fields |= dict.fromkeys(_named(known.response, known.response.fields, known.name), key)
    return fields


def _named(message: MessageSchema, fields: tuple[Field, ...], path: str) -> Iterator[str]:
    for field in fields:
        if ADDRESS.search(field.name):
            yield f"{path}.{field.name}"
        elif field.is_struct:
            yield from _named(message, message.structs[field.type], f"{path}.{field.name}")


def put(value: Any, names: list[str]) -> None:
    """Put the mark into the text that these names lead to; into the hosts below, if they lead to a struct."""
    if isinstance(value, list):
        for one in value:
            put(one, names)
    elif len(names) == 1 and isinstance(getattr(value, names[0]), str):
        setattr(value, names[0], MARK.decode())
    elif names:
        put(getattr(value, names[0]), names[1:])
    elif hasattr(value, "host"):
        value.host = MARK.decode()
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            put(getattr(value, name), [])


def marked(message: type[Message], version: int, path: str) -> Message:
    value = sample(message, version)
    if isinstance(value, DescribeClusterResponse):
        value.endpoint_type = BROKERS
    put(value, path.split(".")[1:])
    return value


def told(asked: bytes, answered: bytes) -> bytes:
    """The bytes that a client gets for its request and the broker's response."""
    with Playbook() as play:
        play.client(asked)
        play.to_broker(asked)
        play.broker(answered)
        got = bytes(play.wire.to_client)
        play.wire.to_client.clear()
    return got


def test_a_new_field_with_an_address_is_found_at_any_depth() -> None:
    known = api(ApiKey.METADATA)
    assert known is not None
    host = known.response.structs["MetadataResponseBroker"][1]
    proxies = msgspec.structs.replace(host, name="proxies", type="Proxy", is_array=True)
    address = msgspec.structs.replace(host, name="advertised_listeners")
    grown = msgspec.structs.replace(known.response, structs={**known.response.structs, "Proxy": (address,)})
    assert list(_named(grown, (proxies,), "Metadata")) == ["Metadata.proxies.advertised_listeners"]


def test_every_response_field_that_may_hold_an_address_is_rewritten_or_has_a_reason() -> None:
    assert set(found()) == REWRITTEN | set(LEFT)
    assert not REWRITTEN & set(LEFT)


def test_clients_get_addresses_of_brokers_only_in_fields_that_have_a_reason() -> None:
    tried = set()
    for path, key in found().items():
        message = response_type(key)
        for version in schema_of(message).versions:
            value = marked(message, version, path)
            try:
                answered = response(value, version)
            except EncodeError:  # this version lacks the field
                continue
            if MARK not in answered:
                continue
            asked = ProduceRequest(acks=1) if key == ApiKey.PRODUCE else sample(request_type(key), version)
            got = told(request(asked, version), answered)
            assert (MARK in got) == (path in LEFT), (path, version)
            tried.add(path)
    assert set(found()) - tried == NUMBERS


def test_the_security_page_names_each_api_whose_addresses_stay() -> None:
    apis = {path.partition(".")[0] for path, reason in LEFT.items() if reason is not NUMBER}
    assert {name for name in apis if not re.search(rf"\b{name}\b", PAGE)} == set()
