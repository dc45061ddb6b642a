"""APIs whose requests cannot be made harmless: no well-formed request of them is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.protocol.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

_REPLICAS: Final = "changes leaders or replicas of partitions"
_QUORUM: Final = "changes the leader or the voters of the quorum"
_QUORUM_MEMBERS: Final = "removes a controller from the quorum"
_BROKERS: Final = "changes the registration of a broker"
_SHARE_STATE: Final = "reads or changes the share coordinator's topic"

HARMFUL: Final[Mapping[int, str]] = {
    ApiKey.LEADER_AND_ISR: _REPLICAS,
    ApiKey.STOP_REPLICA: _REPLICAS,
    ApiKey.UPDATE_METADATA: "changes the metadata of brokers",
    ApiKey.CONTROLLED_SHUTDOWN: "moves the leaders of all partitions away from a broker",
    ApiKey.VOTE: _QUORUM,
    ApiKey.BEGIN_QUORUM_EPOCH: _QUORUM,
    ApiKey.END_QUORUM_EPOCH: _QUORUM,
    ApiKey.ALTER_PARTITION: _REPLICAS,
    ApiKey.ENVELOPE: "executes another request at the controller",
    ApiKey.BROKER_REGISTRATION: _BROKERS,
    ApiKey.BROKER_HEARTBEAT: _BROKERS,
    ApiKey.UNREGISTER_BROKER: _BROKERS,
    ApiKey.ALLOCATE_PRODUCER_IDS: "uses up a block of producer ids",
    ApiKey.CONTROLLER_REGISTRATION: _QUORUM,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _REPLICAS,
    ApiKey.ADD_RAFT_VOTER: _QUORUM,
    ApiKey.REMOVE_RAFT_VOTER: _QUORUM,
    ApiKey.UPDATE_RAFT_VOTER: _QUORUM,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _SHARE_STATE,
    ApiKey.UNREGISTER_CONTROLLER: _QUORUM_MEMBERS,
}
"""API key → reason why no well-formed request is sent."""
