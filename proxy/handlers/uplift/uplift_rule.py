"""The versions that Weir offers beyond a broker's own, and how such requests reach the broker.

Weir offers a newer version if it can supply every difference on the way from the broker's version:

- by rule: versions that only add throttle_time_ms to the response (KIP-124), and versions that change nothing
  on the wire and have clients wait out throttle_time_ms by themselves (KIP-219);
- by hand: the versions in `BY_HAND`, which lead to error 89 (KIP-599).

`NEVER` and `EXCEPTIONS` say why the other versions of this kind are not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple

from weir.protocol.api import ApiKey, versions
from weir.protocol.backing_off import BACKS_OFF_FROM
from weir.protocol.codec import response_type
from weir.protocol.messages import CreateTopicsRequest
from weir.protocol.scanning.field_offsets import field_offset
from weir.protocol.values import Message
from weir.protocol.version_differences import THROTTLE_FIELD, DifferenceKind, Position, version_difference
from weir.protocol.versions import VersionRange
from weir.proxy.handlers.api_versions import node_check


class UpliftKind(IntEnum):
    """Kind of change by which Weir turns a request and its response from the client's version to one that the
    broker has, and back. Each kind includes the kinds before it.
    """

    PATCH = 1
    """Overwrite the version number in the request's header; the response is unchanged."""
    THROTTLE = 2
    """Overwrite the version number in the request, and insert throttle_time_ms into the response."""
    TRANSLATE = 3
    """Decode the request in the client's version and encode it in the broker's. Decode the response in the
    broker's version and encode it in the client's.
    """


class Route(NamedTuple):
    """Way in which Weir passes on a request in a version that the broker lacks."""

    broker_version: int
    kind: UpliftKind
    throttle: Position | None
    """Position (first or last) in the response at which the kind THROTTLE inserts throttle_time_ms; None for
    the other kinds.
    """
    broker_waits: bool
    """True if the broker is older than KIP-219 and waits out throttle_time_ms before it responds, while the
    client's version makes the client wait after the response. The client would wait twice.
    """


class Taken(NamedTuple):
    """One step up, from a version to the next one, which the broker lacks: the kind of change that requests
    and responses need, and the difference between the two versions in words.
    """

    kind: UpliftKind
    reason: str


_DATA_PATH: Final = "clients use versions that have throttle_time_ms, and nothing may be added to this path"

NEVER: Final[Mapping[int, str]] = {ApiKey.PRODUCE: _DATA_PATH, ApiKey.FETCH: _DATA_PATH}
"""APIs for which Weir offers only versions that the broker has, each with the reason."""

_PRODUCER_FENCED: Final = "the broker may answer PRODUCER_FENCED (KIP-588)"
_TRANSACTION_ABORTABLE: Final = "the broker may answer TRANSACTION_ABORTABLE (KIP-890)"
_USER_RESOURCES: Final = "there are resources of type user (KIP-373)"
_STABLE: Final = "version 0 was an early access, gone with Kafka 4.1 (KIP-932)"

EXCEPTIONS: Final[Mapping[tuple[int, int], str]] = {
    (ApiKey.LIST_OFFSETS, 5): "the broker may answer OFFSET_NOT_AVAILABLE (KIP-207)",
    (ApiKey.LIST_OFFSETS, 7): "timestamp -3 means the record with the greatest timestamp (KIP-734)",
    (ApiKey.LIST_OFFSETS, 8): "timestamp -4 means the first offset on local disk (KIP-405)",
    (ApiKey.LIST_OFFSETS, 9): "timestamp -5 means the last offset in remote storage (KIP-1005)",
    (ApiKey.LIST_OFFSETS, 11): "timestamp -6 means the first offset not yet in remote storage (KIP-1023)",
    (ApiKey.OFFSET_COMMIT, 9): "members of the consumer protocol commit in it (KIP-848)",
    (ApiKey.OFFSET_FETCH, 1): "version 0 reads offsets from ZooKeeper",
    (ApiKey.FIND_COORDINATOR, 5): _TRANSACTION_ABORTABLE,
    (ApiKey.FIND_COORDINATOR, 6): "share groups have coordinators (KIP-932)",
    (ApiKey.JOIN_GROUP, 4): "the broker tells a new member its id and has it join again (KIP-394)",
    (ApiKey.SASL_HANDSHAKE, 1): "SASL's tokens follow in requests instead of bare (KIP-152)",
    (ApiKey.API_VERSIONS, 4): "the broker names features that may be at 0 (KAFKA-17011)",
    (ApiKey.INIT_PRODUCER_ID, 4): _PRODUCER_FENCED,
    (ApiKey.INIT_PRODUCER_ID, 5): _TRANSACTION_ABORTABLE,
    (ApiKey.ADD_PARTITIONS_TO_TXN, 2): _PRODUCER_FENCED,
    (ApiKey.ADD_PARTITIONS_TO_TXN, 5): _TRANSACTION_ABORTABLE,
    (ApiKey.ADD_OFFSETS_TO_TXN, 2): _PRODUCER_FENCED,
    (ApiKey.ADD_OFFSETS_TO_TXN, 4): _TRANSACTION_ABORTABLE,
    (ApiKey.END_TXN, 2): _PRODUCER_FENCED,
    (ApiKey.END_TXN, 4): _TRANSACTION_ABORTABLE,
    (ApiKey.TXN_OFFSET_COMMIT, 4): _TRANSACTION_ABORTABLE,
    (ApiKey.TXN_OFFSET_COMMIT, 5): "the request adds the group to the transaction by itself (KIP-890)",
    (ApiKey.DESCRIBE_ACLS, 3): _USER_RESOURCES,
    (ApiKey.CREATE_ACLS, 3): _USER_RESOURCES,
    (ApiKey.DELETE_ACLS, 3): _USER_RESOURCES,
    (ApiKey.BROKER_REGISTRATION, 4): "the broker's features may be at 0 (KAFKA-17011)",
    (ApiKey.SHARE_GROUP_HEARTBEAT, 1): _STABLE,
    (ApiKey.SHARE_GROUP_DESCRIBE, 1): _STABLE,
    (ApiKey.SHARE_ACKNOWLEDGE, 1): _STABLE,
}
"""Versions that Weir does not offer beyond the broker's, although they change nothing on the wire: they
change meanings unrelated to quotas. Each has its reason.
"""

_HAS_THROTTLE: Final = "the response contains throttle_time_ms (KIP-124)"
_BACKS_OFF: Final = "clients, not brokers, wait out the throttle time (KIP-219)"
_MAY_REFUSE: Final = "Weir can refuse topics with error 89 (KIP-599)"

BY_HAND: Final[Mapping[tuple[int, int], Taken]] = {
    (ApiKey.FIND_COORDINATOR, 1): Taken(
        UpliftKind.TRANSLATE,
        "the response contains throttle_time_ms and a null error_message; Weir refuses key_type values "
        "other than 0 (for groups) with UNSUPPORTED_VERSION",
    ),
    (ApiKey.METADATA, 6): Taken(
        UpliftKind.PATCH,
        f"{_BACKS_OFF}; an older broker answers with LEADER_NOT_AVAILABLE instead of LISTENER_NOT_FOUND",
    ),
    (ApiKey.CREATE_TOPICS, 1): Taken(
        UpliftKind.TRANSLATE,
        "the response contains a null error_message; Weir refuses validate_only with UNSUPPORTED_VERSION",
    ),
    (ApiKey.CREATE_TOPICS, 4): Taken(
        UpliftKind.TRANSLATE,
        "Weir refuses -1 partitions or replicas (the broker's default) with UNSUPPORTED_VERSION (KIP-464)",
    ),
    (ApiKey.CREATE_TOPICS, 5): Taken(
        UpliftKind.TRANSLATE,
        "flexible encoding; in the response, num_partitions and replication_factor are -1 (unknown), and "
        "configs is null (KIP-525)",
    ),
    (ApiKey.CREATE_TOPICS, 6): Taken(UpliftKind.PATCH, _MAY_REFUSE),
    (ApiKey.DELETE_TOPICS, 3): Taken(
        UpliftKind.PATCH,
        "an older broker answers with another error instead of TOPIC_DELETION_DISABLED",
    ),
    (ApiKey.DELETE_TOPICS, 4): Taken(UpliftKind.TRANSLATE, "flexible encoding"),
    (ApiKey.DELETE_TOPICS, 5): Taken(
        UpliftKind.TRANSLATE,
        f"{_MAY_REFUSE}; error_message is null for the broker's own errors",
    ),
    (ApiKey.CREATE_PARTITIONS, 2): Taken(UpliftKind.TRANSLATE, "flexible encoding"),
    (ApiKey.CREATE_PARTITIONS, 3): Taken(UpliftKind.PATCH, _MAY_REFUSE),
}
"""Versions that Weir can supply although they change more than throttle_time_ms and the wait for it, each
with the kind of change and the reason.
"""


@cache
def taken(api_key: int, version: int) -> Taken | None:
    """Return the change by which Weir supplies `version` on the basis of `version` - 1, with the reason; None
    if Weir cannot supply `version` in this way.
    """
    known = versions(api_key)
    if api_key in NEVER or known is None or version not in known or version - 1 not in known:
        return None
    by_hand = BY_HAND.get((api_key, version))
    if by_hand is not None or (api_key, version) in EXCEPTIONS:
        return by_hand
    change = version_difference(api_key, version).change
    if change is DifferenceKind.THROTTLE:
        return Taken(UpliftKind.THROTTLE, _HAS_THROTTLE)
    if change is DifferenceKind.SAME and BACKS_OFF_FROM.get(api_key) == version:
        return Taken(UpliftKind.PATCH, _BACKS_OFF)
    return None


def reach(api_key: int, broker_max: int) -> int:
    """Return the highest version of an API that Weir can offer if the broker's highest version is
    `broker_max`.
    """
    version = broker_max
    while taken(api_key, version + 1) is not None:
        version += 1
    return version


def may_be_uplifted(api_key: int, version: int) -> bool:
    """Return True if Weir offers this version to clients of a broker that lacks it but has the version before
    it.
    """
    return taken(api_key, version) is not None


def route(api_key: int, version: int, broker: VersionRange) -> Route | None:
    """Return the way in which a request in `version` reaches a broker that has the versions `broker`. Return
    None if the broker has `version`, so that the request is forwarded unchanged, or if Weir does not offer
    it.
    """
    if not broker or not broker.max < version <= reach(api_key, broker.max):
        return None
    crossed = range(broker.max + 1, version + 1)
    kind = max(found.kind for each in crossed if (found := taken(api_key, each)) is not None)
    positions = [
        position for each in crossed if (position := version_difference(api_key, each).throttle) is not None
    ]
    return Route(
        broker_version=broker.max,
        kind=kind,
        throttle=positions[0] if kind is UpliftKind.THROTTLE else None,
        broker_waits=BACKS_OFF_FROM.get(api_key) in crossed and _has_throttle(api_key, broker.max),
    )


def _has_throttle(api_key: int, version: int) -> bool:
    return field_offset(response_type(api_key), version, THROTTLE_FIELD) is not None


def offered(
    broker: Mapping[int, VersionRange], *, uplift: bool = True, own: Iterable[int] = ()
) -> dict[int, VersionRange]:
    """Return the versions offered to clients, by API key: those that both the broker and Weir have, and those
    that Weir adds.

    ApiVersions has the versions of `node_check`, with or without `uplift`.

    Weir answers the APIs `own` itself, whatever versions the broker has. No API is added if the broker's
    versions are empty. An API that the broker lacks is offered in its last version only: some clients infer
    the broker's age from v0 of an API. (kafka-python takes a broker with DescribeClientQuotas v0 for Kafka
    2.6, and then expects transactions.)
    """
    told = {
        api_key: VersionRange(both.min, reach(api_key, both.max)) if uplift else both
        for api_key, theirs in broker.items()
        if (ours := versions(api_key)) is not None and (both := ours.intersect(theirs))
    }
    if ApiKey.API_VERSIONS in told:
        told[ApiKey.API_VERSIONS] = node_check.offered(told[ApiKey.API_VERSIONS])
    added = {
        api_key: ours if api_key in broker else VersionRange(ours.max, ours.max)
        for api_key in own
        if (ours := versions(api_key)) is not None
    }
    return {**told, **added} if broker else told


def beyond(request: Message, version: int, broker_version: int) -> str | None:
    """Describe the part of a request in `version` that cannot be expressed in `broker_version`, though all
    its fields exist there; return None if there is no such part.

    Fields that `broker_version` lacks need no check: encoding raises EncodeError unless they have their
    defaults.
    """
    # In a client's version below 4, -1 is no default: the broker itself refuses it as an invalid number.
    is_new = broker_version < 4 <= version
    if is_new and isinstance(request, CreateTopicsRequest) and _wants_defaults(request):
        return "default partitions or replication factor, which the broker does not know (KIP-464)"
    return None


def _wants_defaults(request: CreateTopicsRequest) -> bool:
    return any(
        not topic.assignments and -1 in (topic.num_partitions, topic.replication_factor)
        for topic in request.topics
    )
