"""Recipes of requests about groups of consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.conformance.probe.requests.recipes.common import MEMBER
from weir.conformance.probe.requests.records import subscription
from weir.protocol.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weir.conformance.probe.requests.names import Names
    from weir.conformance.probe.requests.recipes.common import Recipe

_OFFSET_COMMIT: Final[Recipe] = {
    "generation_id_or_member_epoch": (-1,),
    "member_id": ("",),
    "group_instance_id": (None,),
    "retention_time_ms": (-1, 60_000),
    "commit_timestamp": (-1,),
    "committed_offset": (0, 1),
    "committed_metadata": ("", "weir-probe", None),
}
"""A consumer without a group's membership (generation -1) may commit."""
_OFFSET_FETCH: Final[Recipe] = {
    "member_id": (None,),
    "member_epoch": (-1,),
    "topics[]": (0, 1, None, 2),
    "groups[]": (1,),
}


def _find_coordinator(names: Names) -> Recipe:
    return {
        "key": (names.group,),
        "coordinator_keys": (names.group,),
        "key_type": (0, 1),
        "coordinator_keys[]": (1,),
    }


def _join_group(names: Names) -> Recipe:
    """A new member of a group of its own, which ends with its session. Other shapes: unknown members."""
    return {
        "member_id": ("", MEMBER),
        "group_instance_id": (None,),
        "session_timeout_ms": (6_000,),
        "rebalance_timeout_ms": (1_000,),
        "protocol_type": ("consumer",),
        "JoinGroupRequestProtocol.name": ("range", "roundrobin"),
        "protocols[]": (1, 2),
        "metadata": (subscription(names.topic),),
        "reason": (None, "weir-probe"),
    }


def _groups(names: Names) -> Recipe:
    """Ids of groups that do not exist."""
    ids = (names.group, f"{names.group}-2")
    return {"groups": ids, "groups_names": ids, "group_ids": ids, "group_id": ids, "topics[]": (0, 1, 2)}


def _share_offsets(names: Names) -> Recipe:
    """Topics that do not exist: others would create the share coordinator's topic."""
    absent = (names.absent_topic, f"{names.prefix}-other")
    return {
        "group_id": (names.group, f"{names.group}-2"),
        "topic_name": absent,
        "groups[]": (1, 2),
        "topics[]": (1, 2),
    }


_LIST_GROUPS: Final[Recipe] = {"states_filter": ("Stable", "Empty"), "types_filter": ("classic", "consumer")}


def _consumer_heartbeat(names: Names) -> Recipe:
    """A heartbeat of a member that never joined."""
    return {
        "member_epoch": (5,),
        "instance_id": (None,),
        "subscribed_topic_names": (names.topic, names.absent_topic),
        "subscribed_topic_regex": (None, "weir-probe-.*"),
        "server_assignor": (None, "uniform"),
        "rebalance_timeout_ms": (-1, 1_000),
    }


def _share_heartbeat(names: Names) -> Recipe:
    """A heartbeat of a member that never joined: a member would create the share coordinator's topic."""
    return {"member_epoch": (5,), "subscribed_topic_names": (names.topic, names.absent_topic)}


def _share_session(names: Names) -> Recipe:
    """A session that was never opened."""
    return {
        "group_id": (names.group,),
        "share_session_epoch": (5,),
        "max_bytes": (1 << 16,),
        "max_records": (1,),
        "batch_size": (1,),
        "share_acquire_mode": (0,),
        "is_renew_ack": (False,),
        "first_offset": (0,),
        "last_offset": (0,),
        "acknowledge_types": (1,),
    }


def _streams_heartbeat(names: Names) -> Recipe:
    """A heartbeat of a member that never joined: a member would create topics."""
    return {
        "member_epoch": (5,),
        "instance_id": (None,),
        "source_topics": (names.topic,),
        "shutdown_application": (False,),
        "topology": (None,),
    }


GROUPS: Final[Mapping[int, Recipe | Callable[[Names], Recipe]]] = {
    ApiKey.OFFSET_COMMIT: _OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH: _OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.DESCRIBE_GROUPS: _groups,
    ApiKey.LIST_GROUPS: _LIST_GROUPS,
    ApiKey.DELETE_GROUPS: _groups,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _groups,
    ApiKey.SHARE_GROUP_HEARTBEAT: _share_heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: _groups,
    ApiKey.SHARE_FETCH: _share_session,
    ApiKey.SHARE_ACKNOWLEDGE: _share_session,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _streams_heartbeat,
    ApiKey.STREAMS_GROUP_DESCRIBE: _groups,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _share_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _share_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _share_offsets,
}
