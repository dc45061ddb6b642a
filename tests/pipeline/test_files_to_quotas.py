"""From usage files to quotas: ingest, roll-up and recommendation together. Expected quotas are 1.5 times the
rate at which a client produced at one broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.pipeline.usage_files import NOON_MS, put
from weir.pipeline.ingest.job import ingest
from weir.pipeline.ingest.sources import Directory
from weir.pipeline.lake import Lake
from weir.pipeline.outcome import Outcome
from weir.pipeline.recommend.job import recommend
from weir.pipeline.recommend.plan import RecommendationPlan
from weir.pipeline.rollup.job import rollup
from weir.quotas import QuotaKey, parse
from weir.usage.records import UsageRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
MB = 1_000_000
INTERVAL_MS = 10_000
HOUR_MS = 3_600_000
NOW = datetime(2023, 12, 1, tzinfo=UTC)


def produced(after_ms: int, rate: int, *, client_id: str = "app", broker: int = 1) -> bytes:
    """Return the usage record of a client that produced at `rate` (bytes/s) for ten seconds."""
    bytes_ = rate * INTERVAL_MS // 1000
    record = UsageRecord(
        version=1,
        time_ms=NOON_MS + after_ms,
        interval_ms=INTERVAL_MS,
        instance="weir-1",
        broker=broker,
        user="alice",
        client_id=client_id,
        api="produce",
        requests=10,
        bytes_in=bytes_,
        charged_bytes=bytes_,
    )
    return msgspec.json.encode(record)


def windows(hour: int, count: int, rate: int, **about: object) -> Iterator[bytes]:
    """Yield usage records of the first `count` windows of an hour."""
    for window in range(count):
        yield produced(hour * HOUR_MS + window * INTERVAL_MS, rate, **about)  # type: ignore[arg-type]  # by name


class Quotas:
    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._lake, self._files = spark, Lake(str(root / "lake")), root / "usage"

    def put(self, name: str, lines: Iterable[bytes]) -> None:
        put(self._files, name, *lines)

    def recommended(self, **options: object) -> tuple[dict[str, float], Outcome]:
        """Run all three jobs; return the proposed limits by client-id, and the recommendation."""
        ingest(self._spark, self._lake, Directory(str(self._files)), kinds=("usage",))
        rollup(self._spark, self._lake)
        written: list[str] = []
        plan = RecommendationPlan(**{"now": NOW, "quotas": (PRODUCE,), **options})  # type: ignore[arg-type]  # fields by name
        outcome = recommend(self._spark, self._lake, plan, written.extend)
        values = parse("".join(written)).values
        limits = {
            entity.client_id: value
            for (entity, _key), value in values.items()
            if isinstance(entity.client_id, str)
        }
        return limits, outcome


@pytest.fixture
def quotas(spark: SparkSession, tmp_path: Path) -> Quotas:
    return Quotas(spark, tmp_path)


def test_ten_minutes_of_backfill_in_fourteen_days_raise_no_quota_and_are_flagged(quotas: Quotas) -> None:
    """The quota became 150 MB/s."""
    for day in range(14):
        lines = [line for hour in range(24) for line in windows(24 * day + hour, 6, 5 * MB)]
        quotas.put(f"usage-weir-1-{day:08d}.jsonl", lines)
    quotas.put("usage-backfill.jsonl", windows(200, 60, 100 * MB, broker=1))
    limits, outcome = quotas.recommended()
    assert limits == {"app": 7.5 * MB}
    (flags,) = (each for each in outcome.listings if each.title == "flags")
    assert [row[:2] for row in flags.rows] == [("outlier", 1)]


def test_one_hot_partition_among_24_brokers_sets_the_quota_of_each_broker(quotas: Quotas) -> None:
    """Quotas are per broker; a percentile over all brokers proposed 1 MB/s."""
    lines = [line for broker in range(2, 25) for line in windows(0, 60, MB // 100, broker=broker)]
    quotas.put("usage-weir-1-00000000.jsonl", [*lines, *windows(0, 60, 30 * MB, broker=1)])
    assert quotas.recommended(headroom=1.0)[0] == {"app": 30 * MB}
