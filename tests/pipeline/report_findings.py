"""Findings of a report, made by hand or of a chosen size, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sin
from random import Random
from typing import Final

from weir.pipeline.report.model import (
    DAY_MS,
    HOUR_MS,
    Bounds,
    CandidateResult,
    Columns,
    EntityCounts,
    EntityUsage,
    Findings,
    Ingested,
    Loads,
    Proposal,
    ReportOptions,
    Series,
    Use,
)
from weir.pipeline.report.names import ReportEntity

START_MS: Final = 1_795_737_600_000
"""2026-11-27 00:00 UTC (ms), a Friday."""
HOUR_S: Final = 3600.0
ALICE: Final = ReportEntity("alice", "app")
NOTHING: Final = Findings(ReportOptions())


def hours(count: int, seconds: float = HOUR_S) -> Columns:
    return Columns(START_MS, HOUR_MS, (seconds,) * count)


def client(entity: ReportEntity, bytes_: Series, **values: object) -> EntityUsage:
    """Return a client that produced `bytes_` at broker 1."""
    fields = {
        "bytes_in": int(sum(bytes_)),
        "bytes_out": 0,
        "requests": 10,
        "throttle_s": {},
        "peaks": {"producer_byte_rate": 2000.0},
        "brokers": 1,
        "busiest_broker": 1,
        "skew": 1.0,
        "means": {"producer_byte_rate": tuple(value / HOUR_S for value in bytes_)},
        "highs": {"producer_byte_rate": tuple(value / HOUR_S * 2 for value in bytes_)},
        **values,
    }
    return EntityUsage(entity, bytes_=bytes_, **fields)  # type: ignore[arg-type]  # checked by the tests


def brokers(*each: Series) -> dict[int, Loads]:
    """Return the brokers 1, 2 and so on, which have these loads (bytes/s) of producers by column."""
    return {number: {"producer_byte_rate": loads} for number, loads in enumerate(each, 1)}


def findings(*entities: ReportEntity) -> Findings:
    """Return findings with all parts, for these entities; each produced 3.6 MB in the first hour and 7.2 MB
    in the second.
    """
    bytes_ = (3.6e6, 7.2e6)
    total = tuple(value * len(entities) for value in bytes_)
    waits = {"producer_byte_rate": 90.0, "request_percentage": 30.0}
    clients = tuple(client(each, bytes_, throttle_s=waits) for each in entities)
    return Findings(
        ReportOptions(),
        use=Use(
            hours(2),
            total,
            brokers(tuple(value / HOUR_S for value in total)),
            0,
            clients,
            len(clients) + 3,
            (EntityCounts(len(clients) + 3, len(clients), 120.0 * len(clients)), EntityCounts()),
        ),
        proposals=tuple(
            Proposal(
                each, "producer_byte_rate", 1e3, 4e3, 2e3, flags=("never near",), reason="r: used little"
            )
            for each in entities
        ),
        candidates=(
            CandidateResult("recorded", {"producer_byte_rate": Bounds(60, 60)}, 4, 0),
            CandidateResult("next.toml", {"producer_byte_rate": Bounds(0, None)}, 2, 0),
        ),
        ingested=(Ingested("usage", 90, 10, (("no JSON", 10),)),),
    )


def large(*, clients: int, top: int, days: int = 15, brokers: int = 30) -> Findings:
    """Return findings of many clients with names and usage from a fixed seed, and a capacity of 100 MB/s."""
    random = Random(22)  # test data
    columns = hours(24 * days)

    def day(scale: float, phase: float, noise: float) -> Series:
        return tuple(
            scale * max(1 + sin(2 * pi * (hour - phase) / 24), 0.05) * (1 + noise * random.random())
            for hour in range(columns.count)
        )

    teams = ("orders", "payments", "search", "clickstream", "warehouse", "fraud", "billing", "mail")
    made = []
    for index in range(clients):
        scale = 2e7 / (index + 1)
        rates = {quota: day(scale * part, random.random() * 24, 0.6) for quota, part in _PARTS.items()}
        waits = {"producer_byte_rate": random.random() * 9000} if index % 7 == 3 else {}
        bytes_ = tuple(sum(pair) * HOUR_S for pair in zip(*rates.values(), strict=True))
        made.append(
            client(
                ReportEntity(
                    random.choice(teams), f"{random.choice(teams)}-{random.choice(teams)}-{index:03}"
                ),
                bytes_,
                throttle_s=waits,
                means=rates,
                highs={
                    quota: tuple(v * (1 + random.random()) for v in rate) for quota, rate in rates.items()
                },
                peaks={quota: max(rate) * 1.9 for quota, rate in rates.items()},
                bytes_out=int(sum(bytes_) // 2),
                requests=random.randrange(10**7),
                brokers=random.randrange(2, 7),
                skew=3.0 if index % 11 == 4 else 1.1,
            )
        )
    flags = (("held back",), (), ("never near",), ("outlier", "new"))
    return Findings(
        ReportOptions(
            "production", top=top, capacity={"producer_byte_rate": 100e6, "consumer_byte_rate": 200e6}
        ),
        use=Use(
            columns,
            tuple(map(sum, zip(*(each.bytes_ for each in made), strict=True))),
            {number: _loads(day(9e7 / (number + 1), 8, 0.2)) for number in range(1, brokers + 1)},
            0,
            tuple(made),
            clients * 3,
            (
                EntityCounts(clients * 3, clients // 7, 53_000),
                EntityCounts(int(clients * 2.8), clients // 9, 48_000),
            ),
        ),
        proposals=tuple(
            Proposal(
                each.entity,
                quota,
                peak,
                None if index % 5 == 0 else peak * (0.8, 1.2, 4, 1)[index % 4],
                peak * 1.5,
                flags=flags[index % 4],
                reason="99th percentile of 312 hours with use, x 1.2 growth, x 1.25 headroom",
            )
            for index, each in enumerate(made)
            for quota, peak in each.peaks.items()
        ),
        candidates=(
            CandidateResult(
                "recorded",
                {"producer_byte_rate": Bounds(53e3, 53e3), "consumer_byte_rate": Bounds(9, 9)},
                8123,
                0,
            ),
            CandidateResult(
                "next.toml",
                {"producer_byte_rate": Bounds(4e3, None), "consumer_byte_rate": Bounds(20, 60)},
                7,
                0,
            ),
        ),
        ingested=(
            Ingested("usage", 40_123_456, 17, (("no JSON", 12), ("time_ms is missing", 5))),
            Ingested("trace", 1_234, 0, ()),
        ),
    )


_PARTS: Final = {"producer_byte_rate": 1.0, "consumer_byte_rate": 0.4}


def _loads(load: Sequence[float]) -> Loads:
    return {quota: tuple(v * part for v in load) for quota, part in _PARTS.items()}


assert START_MS % DAY_MS == 0
