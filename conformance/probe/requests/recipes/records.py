"""Recipes of requests about records, metadata and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.conformance.probe.requests.recipes.common import UNKNOWN_PRODUCER
from weir.conformance.probe.requests.records import record_batch
from weir.protocol.api import ApiKey
from weir.protocol.values import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weir.conformance.probe.requests.names import Names
    from weir.conformance.probe.requests.recipes.common import Recipe


def _produce(names: Names) -> Recipe:
    """A transactional id is a null: a batch of a transaction that nobody ends blocks its partition."""
    return {
        "transactional_id": (None,),
        "acks": (1, -1),
        "index": (0, 1, 2),
        "records": (record_batch(names.version),),
    }


_FETCH: Final[Recipe] = {
    "cluster_id": (None,),
    "session_id": (0,),
    "session_epoch": (-1,),
    "max_bytes": (1 << 20, 1),
    "fetch_offset": (0, 1 << 40, -1),
    "last_fetched_epoch": (-1,),
    "log_start_offset": (-1,),
    "partition_max_bytes": (1 << 16, 1, 0),
    "rack_id": ("", "weir-probe"),
}


def _list_offsets(names: Names) -> Recipe:
    """The special timestamps -3 to -6 belong to later versions (KIP-734, KIP-405, KIP-1005, KIP-1023)."""
    newer = [found for since, found in ((7, -3), (8, -4), (9, -5), (11, -6)) if names.version >= since]
    return {"timestamp": (-1, -2, 0, *newer), "max_num_offsets": (1, 2)}


def _metadata(names: Names) -> Recipe:
    """Versions before 4 create each topic that they name."""
    found: Recipe = {
        "allow_auto_topic_creation": (False,),
        "name": (names.topic, names.absent_topic) if names.version >= 4 else (names.topic,),
        "topic_id": (ZERO_UUID,),
        "topics[]": (0, None, 1, 2) if names.version >= 4 else (0, None, 1),
    }
    return found


_API_VERSIONS: Final[Recipe] = {
    "client_software_name": ("weir-probe",),
    "client_software_version": ("1", "1.0-a.b"),
    "cluster_id": (None,),
    "node_id": (-1,),
}


def _init_producer_id(names: Names) -> Recipe:
    return {
        "transactional_id": (None, names.group),
        "transaction_timeout_ms": (1_000, 60_000),
        "producer_id": (-1,),
        "producer_epoch": (-1,),
        "enable2_pc": (False,),
        "keep_prepared_txn": (False,),
    }


_LEADER_EPOCH: Final[Recipe] = {"leader_epoch": (0, 1)}
_ADD_PARTITIONS: Final[Recipe] = {
    "verify_only": (True,),
    "v3_and_below_producer_id": (UNKNOWN_PRODUCER,),
    "transactions[]": (1,),
    "topics[]": (1, 2),
}
"""At least one transaction: Kafka 3.9 and 4.2 never answer a request without one."""
_WRITE_MARKERS: Final[Recipe] = {"transaction_version": (1,), "coordinator_epoch": (0,)}
"""Markers in the scratch topic only: elsewhere they would abort a transaction."""


def _txn_offset_commit(names: Names) -> Recipe:
    """An absent topic: an offset in a transaction that nobody ends would block the offsets' partition."""
    return {
        "name": (names.absent_topic,),
        "topic_id": (names.absent_id,),
        "topics[]": (0, 1),
        "group_instance_id": (None,),
    }


_LIST_TRANSACTIONS: Final[Recipe] = {
    "state_filters": ("Ongoing", "Empty"),
    "producer_id_filters": (UNKNOWN_PRODUCER, UNKNOWN_PRODUCER + 1),
    "duration_filter": (-1, 1_000),
    "transactional_id_pattern": (None, "weir-probe-.*"),
}


def _transactions(names: Names) -> Recipe:
    return {"transactional_ids": (names.group, f"{names.group}-2")}


RECORDS: Final[Mapping[int, Recipe | Callable[[Names], Recipe]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _FETCH,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.API_VERSIONS: _API_VERSIONS,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN: _ADD_PARTITIONS,
    ApiKey.WRITE_TXN_MARKERS: _WRITE_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_TRANSACTIONS: _transactions,
    ApiKey.LIST_TRANSACTIONS: _LIST_TRANSACTIONS,
}
