"""Generate the usage records of many clients; the same plan always gives the same records.

A few clients cause most of the work (Zipf's law). Clients work in bursts of seconds, and more by day than by
night. Some users have many clients, and clients of several users share the default client-ids of libraries.
The records come in batches that follow each other in time, like the files of the job `ingest`. Each batch has
its own random stream, so it can be generated without the others, and memory is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from weir.usage.groups import GROUPS, ApiGroup
from weir.usage.records import ByQuota

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float64]"
Columns: TypeAlias = "dict[str, NDArray[np.int64] | NDArray[np.float64]]"
"""Columns of records, by field of `UsageRecord`. `user` and `client_id` hold the rank of the client (0 is the
busiest), `api` an index into `GROUPS`, `instance` the number of a Weir. Counts by quota have names such as
`throttle_ms.producer_byte_rate`.
"""

FIRST_MS: Final = 1_767_225_600_000
"""Time (ms) of the first record: 2026-01-01, 00:00 UTC."""
DAY_S: Final = 86_400
INTERVAL_MS: Final = 1000
QUOTAS: Final = ByQuota.__struct_fields__
LIBRARIES: Final = ("", "rdkafka", "producer-1", "consumer-1", "sarama", "kafka-python", "console-producer")
"""Default client-ids of libraries and tools."""

_BURST_RECORDS: Final = 12
_BURST_MOST: Final = 60
_RECORDS_PER_S: Final = 3
_CLIENTS_PER_USER: Final = 20
_SHARING: Final = 5
"""Among the clients that may have a library's client-id (one per user), every n-th has one."""
_RHYTHM: Final = 0.6
"""Relative increase of work at the busiest time of day over the average."""
_BROKERS_USED: Final = 3
_QUARTER_US: Final = 0.25
"""Request times are multiples of this (µs), so that sums are exact in any order of addition."""
_OLD: Final = 8
"""Number of fetched bytes for each byte of old batches."""
_FAST_BYTES: Final = 200_000
"""Number of charged bytes above which a record may be throttled, with a probability of one half."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Number of records, clients (`entities`), brokers and days to generate, and the random seed."""

    records: int = 10_000_000
    entities: int = 100_000
    brokers: int = 6
    days: int = 2
    batch_records: int = 500_000
    seed: int = 1
    zipf: float = 1.0
    """Exponent of Zipf's law: the n-th busiest client has a share of the work proportional to 1 / n ** zipf.
    """


def batches(plan: Plan) -> Iterator[Columns]:
    """Yield all records, batch by batch; each batch is sorted by time."""
    shares = _shares(plan)
    for number, first in enumerate(range(0, plan.records, plan.batch_records)):
        count = min(plan.batch_records, plan.records - first)
        random = np.random.Generator(np.random.PCG64([plan.seed, number]))
        yield _batch(plan, shares, random, first, count)


def _shares(plan: Plan) -> Floats:
    """Return cumulated shares of the work, by rank: the share of the client and of all busier clients."""
    weights = np.arange(1, plan.entities + 1, dtype=np.float64) ** -plan.zipf
    total: Floats = np.cumsum(weights / weights.sum())
    total[-1] = 1
    return total


def _batch(plan: Plan, shares: Floats, random: np.random.Generator, first: int, count: int) -> Columns:
    entity, at_s, place = _bursts(plan, shares, random, first, count)
    order = np.argsort(at_s, kind="stable")
    entity, at_s, place = entity[order], at_s[order], place[order]
    api = _apis(random, entity, place)
    broker = (entity * 7 + place % _BROKERS_USED) % plan.brokers
    used = _used(random, entity, api)
    return {
        "time_ms": FIRST_MS + at_s * INTERVAL_MS,
        "instance": _seen_before(at_s, entity, broker, api),
        "broker": broker,
        "user": entity,
        "client_id": entity,
        "api": api,
        **used,
    }


def _bursts(
    plan: Plan, shares: Floats, random: np.random.Generator, first: int, count: int
) -> tuple[Ints, Ints, Ints]:
    """Return three arrays with one value per record: rank of the client, time (s after FIRST_MS), and index
    within the client's burst.
    """
    lengths = np.minimum(random.geometric(1 / _BURST_RECORDS, count), _BURST_MOST)
    bursts = int(np.searchsorted(np.cumsum(lengths), count)) + 1
    lengths = lengths[:bursts]
    lengths[-1] -= lengths.sum() - count
    began = np.cumsum(lengths) - lengths
    whose = np.searchsorted(shares, random.random(bursts)).astype(np.int64)
    place = np.arange(count) - np.repeat(began, lengths)
    began_s = _time_s(plan, (first + began + random.random(bursts)) / plan.records)
    at_s = np.repeat(began_s, lengths) + place // _RECORDS_PER_S
    return np.repeat(whose, lengths), at_s.astype(np.int64), place


def _time_s(plan: Plan, share: Floats) -> Floats:
    """Return the times (s after FIRST_MS) at which these shares (0 to 1) of all records have been written.
    The rate of records is lowest at midnight and highest at noon.
    """
    end_s = plan.days * DAY_S - _BURST_MOST
    grid_s = np.linspace(0, end_s, plan.days * 24 * 60 + 1)
    day = 2 * np.pi * grid_s / DAY_S
    written = grid_s - _RHYTHM * DAY_S / (2 * np.pi) * np.sin(day)
    at: Floats = np.interp(share * written[-1], written, grid_s)
    return at


def _apis(random: np.random.Generator, entity: Ints, place: Ints) -> Ints:
    """Return each record's API, as an index into `GROUPS`. Two of three records are Produce or Fetch: a
    client only produces, only fetches, or does both, depending on its rank.
    """
    moves = np.where(
        (entity % 3 == 2) & (place % 2 == 0) | (entity % 3 == 0), ApiGroup.PRODUCE, ApiGroup.FETCH
    )
    moving = np.where(moves == ApiGroup.PRODUCE, GROUPS.index(ApiGroup.PRODUCE), GROUPS.index(ApiGroup.FETCH))
    rare = random.choice(len(GROUPS), entity.size, p=_RARE)
    return np.where(place % 3 != 2, moving, rare).astype(np.int64)


_OFTEN: Final = {
    ApiGroup.METADATA: 0.5,
    ApiGroup.GROUPS: 0.38,
    ApiGroup.TRANSACTIONS: 0.06,
    ApiGroup.SECURITY: 0.04,
}
_RARE: Final = [
    _OFTEN.get(group, (1 - sum(_OFTEN.values())) / (len(GROUPS) - len(_OFTEN))) for group in GROUPS
]
"""Probabilities of the API groups, in the order of `GROUPS`, for every third record of a burst."""


def _used(random: np.random.Generator, entity: Ints, api: Ints) -> Columns:
    count = entity.size
    produces, fetches = api == GROUPS.index(ApiGroup.PRODUCE), api == GROUPS.index(ApiGroup.FETCH)
    requests = random.poisson(3, count) + 1
    payload = (random.lognormal(8, 1.5, count) * requests).astype(np.int64)
    bytes_in = requests * 90 + np.where(produces, payload, 0)
    bytes_out = requests * 70 + np.where(fetches, payload, 0)
    charged = np.where(produces, bytes_in, np.where(fetches, bytes_out, 0))
    changes = api == GROUPS.index(ApiGroup.MUTATIONS)
    return {
        "requests": requests,
        "bytes_in": bytes_in,
        "bytes_out": bytes_out,
        "sessions": 1 + (entity % 8 == 0) * random.integers(0, 4, count),
        "charged_bytes": charged,
        "request_time_us": np.round((requests * 60 + payload / 100) / _QUARTER_US) * _QUARTER_US,
        "old_bytes": np.where(fetches, charged // _OLD, 0),
        "mutations": np.where(changes, random.integers(1, 50, count), 0),
        "errors": (random.random(count) < 1e-4).astype(np.int64),
        **_throttled(random, charged, produces, changes),
    }


def _throttled(
    random: np.random.Generator, charged: Ints, produces: NDArray[np.bool_], changes: NDArray[np.bool_]
) -> Columns:
    count = charged.size
    chance = random.random(count)
    fast = (charged > _FAST_BYTES) & (chance < 0.5)
    who = {
        "producer_byte_rate": fast & produces,
        "consumer_byte_rate": fast & ~produces,
        "request_percentage": chance > 0.9995,
        "controller_mutation_rate": changes & (chance < 0.2),
    }
    never = np.zeros(count, dtype=np.bool_)
    waits, times = random.integers(1, 3000, count), random.integers(1, 4, count)
    return {
        **{f"throttle_ms.{quota}": np.where(who.get(quota, never), waits, 0) for quota in QUOTAS},
        **{f"violations.{quota}": np.where(who.get(quota, never), times, 0) for quota in QUOTAS},
    }


def _seen_before(*keys: Ints) -> Ints:
    """Return, for each record, the number of earlier records with the same `keys` (interval, client, broker,
    API). This is the number of the Weir that wrote the record, because one Weir adds such records up.
    """
    order = np.lexsort(keys)
    new = np.zeros(order.size, dtype=np.bool_)
    new[:1] = True
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    places = np.arange(order.size)
    since = places - np.maximum.accumulate(np.where(new, places, 0))
    seen = np.empty(order.size, dtype=np.int64)
    seen[order] = since
    return seen


def users(plan: Plan) -> list[str]:
    """Return the user of each client, by rank; several clients have the same user."""
    count = max(1, plan.entities // _CLIENTS_PER_USER)
    return [f"user-{rank % count:05d}" for rank in range(plan.entities)]


def client_ids(plan: Plan) -> list[str]:
    """Return the client-id of each client, by rank. The pair of user and client-id is unique."""
    return [
        LIBRARIES[rank // _SHARING % len(LIBRARIES)] if _shares_name(plan, rank) else f"app-{rank:06d}"
        for rank in range(plan.entities)
    ]


def _shares_name(plan: Plan, rank: int) -> bool:
    """Return True if the client has a library's client-id. At most one client of each user has one, so that
    pairs of user and client-id are unique.
    """
    users_count = max(1, plan.entities // _CLIENTS_PER_USER)
    return rank // users_count == 0 and rank % _SHARING == 0
