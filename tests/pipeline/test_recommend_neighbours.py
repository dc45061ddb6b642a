"""Neighbours of slowed clients, by a rule whose expected results are computed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pytest

from tests.pipeline.usage_rows import ingest, record
from weir.pipeline.lake import Lake
from weir.pipeline.recommend.neighbours import found, neighbours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS: Final = 3_600_000
USUAL: Final = [10, 10, 10, 10]
"""Mean response times (ms) of four hours; the next two are those of the case."""
Clients = dict[str, dict[str, list[int]]]


def clients() -> Clients:
    """Three clients that are slowed in the last two of six hours, while a fourth one begins its work."""
    others = {
        name: {"ms": [*USUAL, 25, 25], "requests": [100] * 6, "us": [100] * 6, "bytes": [1000] * 6}
        for name in "abc"
    }
    batch = {"ms": [0] * 6, "requests": [0] * 6, "us": [0, 0, 0, 0, 600, 600], "bytes": [0] * 6}
    return {**others, "batch": batch}


def hours_of(clients: Clients) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "user": "u",
                "client_id": name,
                "start_ms": hour * HOUR_MS,
                "requests": requests,
                "response_time_us": 1000 * ms * requests,
                "request_time_us": float(us),
                "bytes": size,
            }
            for name, each in clients.items()
            for hour, (ms, requests, us, size) in enumerate(zip(*each.values(), strict=True))
            if us or size
        ]
    )


def test_client_above_its_usual_use_while_three_others_are_slowed_is_a_neighbour() -> None:
    # Response times: 25 ms, 2.5 times the median of 10, 10, 10, 10, 25, 25.
    # Request time: 600 of 900 us are above the median of 0, 0, 0, 0, 600, 600.
    assert found(hours_of(clients())).rows() == [("u", "batch", 2, 3, 2.5, 67.0)]


def test_neighbour_by_bytes() -> None:
    some = clients()
    some["batch"] |= {"us": [0] * 6, "bytes": [0, 0, 0, 0, 9000, 9000]}  # 9000 of 12,000
    assert found(hours_of(some)).rows() == [("u", "batch", 2, 3, 2.5, 75.0)]


NONE: Final[Mapping[str, Mapping[str, Mapping[str, list[int]]]]] = {
    "two others slowed": {"c": {"ms": [10] * 6}},
    "two others and the neighbour itself slowed": {
        "c": {"ms": [10] * 6},
        "batch": {"ms": [*USUAL, 25, 25], "requests": [100] * 6, "bytes": [1] * 6},
    },
    "one hour": {name: {"ms": [*USUAL, 10, 25]} for name in "abc"},
    "1.9 times as slow": {name: {"ms": [*USUAL, 19, 19]} for name in "abc"},
    "too few requests": {"c": {"requests": [100, 100, 100, 100, 99, 99]}},
    "too few hours to know the usual response time": {"c": {"requests": [100, 100, 0, 0, 100, 100]}},
    "no broker has answered": {name: {"ms": [0] * 6} for name in "abc"},
    "the same use in all hours": {"batch": {"us": [600] * 6}},
    "use above the usual, below a fifth": {"batch": {"us": [0, 0, 0, 0, 74, 74]}},  # 74 of 374
}


@pytest.mark.parametrize("case", NONE)
def test_no_neighbour_is_found_below_a_bound(case: str) -> None:
    some: dict[str, Any] = clients()
    for name, changes in NONE[case].items():
        some[name] |= changes
    assert found(hours_of(some)).rows() == []


@pytest.mark.spark
def test_neighbours_are_found_in_usage_records_by_broker(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    assert list(neighbours(spark, lake, "default")) == []
    records = []
    for row in hours_of(clients()).iter_rows(named=True):
        time_ms, fields = row["start_ms"], {"client_id": row["client_id"], "bytes_in": row["bytes"]}
        timed = {"requests": row["requests"] // 2, "response_time_us": row["response_time_us"] // 2}
        records += [
            record(time_ms + 1000, **fields, **timed, request_time_us=row["request_time_us"]),
            record(time_ms + 2000, client_id=row["client_id"], api="metadata", **timed),
            record(
                time_ms + 3000, client_id=row["client_id"], api="fetch", requests=9, response_time_us=10**9
            ),
            record(time_ms + 4000, broker=2, client_id=row["client_id"], **timed),
            record(time_ms + 5000, broker=-1, client_id="d", bytes_in=10**9),
            record(time_ms + 6000, cluster="other", client_id="d", bytes_in=10**9),
        ]
    ingest(spark, lake, records)
    (listing,) = neighbours(spark, lake, "default")
    assert listing.rows == ((1, "u", "batch", 2, 3, 2.5, 67.0),)
