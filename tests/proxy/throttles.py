"""Replication throttles for tests of stores."""

from __future__ import annotations

from typing import Final

from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType, Role

BROKER_1: Final = ConfigKey(ResourceType.BROKER, "1", Role.LEADER.rate_key)
ALL_BROKERS: Final = ConfigKey(ResourceType.BROKER, "", Role.FOLLOWER.rate_key)
ORDERS: Final = ConfigKey(ResourceType.TOPIC, "orders", Role.LEADER.replicas_key)
ORDERS_FOLLOWERS: Final = ConfigKey(ResourceType.TOPIC, "orders", Role.FOLLOWER.replicas_key)
THROTTLES: Final = ReplicationThrottles(
    {BROKER_1: "10000000", ALL_BROKERS: "0", ORDERS: "0:1,1:2", ORDERS_FOLLOWERS: "*"}
)
