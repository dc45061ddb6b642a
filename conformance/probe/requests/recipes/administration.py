"""Recipes of requests about topics, settings, users and the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.conformance.probe.requests.recipes.common import TOPIC, USER
from weir.conformance.quota_names import FETCH, PRODUCE
from weir.protocol.api import ApiKey
from weir.protocol.values import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weir.conformance.probe.requests.names import Names
    from weir.conformance.probe.requests.recipes.common import Recipe


def _create_topics(names: Names) -> Recipe:
    """Version 0 has no validate_only: it names the scratch topic, which exists."""
    return {
        "CreatableTopic.name": (names.topic,)
        if names.version == 0
        else (f"{names.prefix}-new", f"{names.prefix}-other"),
        "num_partitions": (1, 2),
        "replication_factor": (1,),
        "assignments[]": (0,),
        "CreatableTopicConfig.name": ("retention.ms", "cleanup.policy"),
        "value": ("60000", "delete"),
        "topics[]": (1, 2) if names.version else (1,),
    }


def _delete_topics(names: Names) -> Recipe:
    return {
        "topic_names": (names.absent_topic, f"{names.prefix}-other"),
        "DeleteTopicState.name": (names.absent_topic, f"{names.prefix}-other"),
        "topic_id": (ZERO_UUID,),
    }


def _describe_acls(names: Names) -> Recipe:
    return {
        "resource_type_filter": (1, 2),
        "resource_name_filter": (None, names.topic),
        "pattern_type_filter": (3, 1),
        "principal_filter": (None, f"User:{USER}"),
        "host_filter": (None, "*"),
        "operation": (1, 3),
        "permission_type": (1, 3),
    }


def _create_acls(names: Names) -> Recipe:
    """A rule for a cluster with another name than kafka-cluster, which brokers refuse."""
    return {
        "resource_type": (4,),
        "resource_name": (names.topic,),
        "resource_pattern_type": (3,),
        "principal": (f"User:{names.topic}",),
        "host": ("*",),
        "operation": (3, 5),
        "permission_type": (3,),
    }


def _delete_acls(names: Names) -> Recipe:
    """Filters that match the run's own topic and user only."""
    return {
        "resource_type_filter": (2,),
        "resource_name_filter": (names.topic,),
        "pattern_type_filter": (3,),
        "principal_filter": (f"User:{names.topic}",),
        "host_filter": ("*",),
        "operation": (3, 4),
        "permission_type": (3,),
    }


def _describe_configs(names: Names) -> Recipe:
    return {
        "resource_type": (TOPIC,),
        "resource_name": (names.topic, names.absent_topic),
        "configuration_keys": ("retention.ms", "cleanup.policy"),
        "configuration_keys[]": (0, None, 2),
    }


def _alter_configs(names: Names) -> Recipe:
    return {
        "resource_type": (TOPIC,),
        "resource_name": (names.topic, names.absent_topic),
        "AlterableConfig.name": ("retention.ms", "cleanup.policy"),
        "config_operation": (0,),
        "value": ("60000", "delete"),
    }


def _replace_configs(names: Names) -> Recipe:
    """Only a topic that exists: at others, Kafka 1.1 answers with error -1."""
    return {**_alter_configs(names), "resource_name": (names.topic,), "resources[]": (0, 1)}


def _alter_log_dirs(names: Names) -> Recipe:
    return {
        "path": ("/weir-probe-absent", "/weir-probe-other"),
        "topics[]": (1,),
        "AlterReplicaLogDirTopic.name": (names.topic,),
    }


_CREATE_PARTITIONS: Final[Recipe] = {"count": (3, 4), "assignments[]": (None,)}
_CREATE_TOKEN: Final[Recipe] = {
    "owner_principal_type": (None,),
    "owner_principal_name": (None,),
    "principal_type": ("User",),
    "principal_name": (USER, f"{USER}-2"),
    "max_lifetime_ms": (1_000,),
}
"""A token that expires after a second."""


def _describe_token(names: Names) -> Recipe:
    return {
        "principal_type": ("User",),
        "principal_name": (names.topic, names.absent_topic),
        "owners[]": (0, 2),
    }


_TOKEN: Final[Recipe] = {"hmac": (b"weir-probe",), "renew_period_ms": (1,), "expiry_time_period_ms": (1,)}
_ELECT_LEADERS: Final[Recipe] = {"election_type": (0, 1), "topic_partitions[]": (1, 2)}
"""Partitions of the scratch topic only; null means all."""
_REASSIGN: Final[Recipe] = {"replicas[]": (None,), "topics[]": (0, 1, 2)}
"""Null replicas end a reassignment. No reassignment is going on."""
_LIST_REASSIGNMENTS: Final[Recipe] = {"topics[]": (None, 0, 2)}


def _describe_quotas(names: Names) -> Recipe:
    return {
        "entity_type": ("client-id", "user"),
        "match_type": (0,),
        "match": (names.topic, names.absent_topic),
    }


def _alter_quotas(names: Names) -> Recipe:
    return {
        "entity_type": ("client-id", "user"),
        "entity_name": (names.topic, names.absent_topic),
        "entity[]": (1, 2),
        "key": (PRODUCE, FETCH),
        "value": (1024.0,),
        "entries[]": (0, 1),
    }


def _describe_scram(names: Names) -> Recipe:
    return {"UserName.name": (names.topic, names.absent_topic), "users[]": (1, 2)}


def _alter_scram(names: Names) -> Recipe:
    """An unknown mechanism and one iteration, which brokers refuse: no user gets a password."""
    return {
        "ScramCredentialDeletion.name": (names.topic,),
        "ScramCredentialUpsertion.name": (names.absent_topic,),
        "mechanism": (0,),
        "iterations": (1,),
        "salt": (b"weir-probe",),
        "salted_password": (b"weir-probe",),
        "deletions[]": (0, 1),
        "upsertions[]": (0, 1),
    }


_UPDATE_FEATURES: Final[Recipe] = {
    "feature": ("weir.probe", "weir.probe.2"),
    "max_version_level": (1,),
    "upgrade_type": (1,),
    "allow_downgrade": (False,),
}
"""A feature that no broker has: version 0 has no validate_only."""
_QUORUM: Final[Recipe] = {
    "topic_name": ("__cluster_metadata",),
    "partition_index": (0,),
    "topics[]": (1,),
    "partitions[]": (1,),
}


def _snapshot(names: Names) -> Recipe:
    return {
        "cluster_id": (None,),
        "max_bytes": (1,),
        "name": (names.absent_topic,),
        "current_leader_epoch": (0,),
    }


_DESCRIBE_CLUSTER: Final[Recipe] = {"endpoint_type": (1,)}
_TOPIC_PARTITIONS: Final[Recipe] = {"response_partition_limit": (2_000, 1)}
_SASL_HANDSHAKE: Final[Recipe] = {"mechanism": ("PLAIN", "weir-probe")}
_TELEMETRY: Final[Recipe] = {
    "subscription_id": (1,),
    "compression_type": (0,),
    "terminating": (False,),
    "metrics": (b"",),
}
_RESOURCES: Final[Recipe] = {"resource_types": (2, 4)}


ADMINISTRATION: Final[Mapping[int, Recipe | Callable[[Names], Recipe]]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.SASL_HANDSHAKE: _SASL_HANDSHAKE,
    ApiKey.DESCRIBE_ACLS: _describe_acls,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _replace_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_log_dirs,
    ApiKey.CREATE_PARTITIONS: _CREATE_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN: _CREATE_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN: _TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _describe_token,
    ApiKey.ELECT_LEADERS: _ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _REASSIGN,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _LIST_REASSIGNMENTS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_scram,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
    ApiKey.DESCRIBE_QUORUM: _QUORUM,
    ApiKey.UPDATE_FEATURES: _UPDATE_FEATURES,
    ApiKey.FETCH_SNAPSHOT: _snapshot,
    ApiKey.DESCRIBE_CLUSTER: _DESCRIBE_CLUSTER,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _TELEMETRY,
    ApiKey.PUSH_TELEMETRY: _TELEMETRY,
    ApiKey.LIST_CONFIG_RESOURCES: _RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _TOPIC_PARTITIONS,
}
