"""The generator of usage records, and how the pipeline's benchmark compares: no Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import polars as pl
import pytest
from click.testing import CliRunner

from bench.pipeline.__main__ import main
from bench.pipeline.comparing import differences
from bench.pipeline.generator import FIRST_MS, Plan, batches, client_ids, users
from bench.pipeline.jobs import NAME, QUOTAS, JobError, measured
from bench.pipeline.plain import PERIODS, with_pandas, with_polars
from bench.pipeline.tables import write_delta, write_json
from weir.quotas import QuotaKey, parse
from weir.usage.groups import GROUPS
from weir.usage.records import UsageRecord

PLAN = Plan(records=5000, entities=300, batch_records=2000)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    directory = tmp_path_factory.mktemp("lines")
    write_json(PLAN, directory)
    return b"".join(file.read_bytes() for file in sorted(directory.iterdir())).splitlines()


@pytest.fixture(scope="module")
def records(lines: list[bytes]) -> list[UsageRecord]:
    return [msgspec.json.decode(line, type=UsageRecord) for line in lines]


def test_the_same_dataset_plan_writes_the_same_bytes(lines: list[bytes], tmp_path: Path) -> None:
    write_json(PLAN, tmp_path)
    assert b"".join(file.read_bytes() for file in sorted(tmp_path.iterdir())).splitlines() == lines


def test_another_seed_generates_other_records() -> None:
    first, other = (next(batches(Plan(records=100, seed=seed)))["user"] for seed in (1, 2))
    assert list(first) != list(other)


def test_generated_json_lines_equal_those_that_weir_writes(
    lines: list[bytes], records: list[UsageRecord]
) -> None:
    """What is at its default is left out."""
    assert len(lines) == PLAN.records
    assert [msgspec.json.decode(line) for line in lines] == [msgspec.to_builtins(each) for each in records]


def test_generated_usage_records_are_plausible(records: list[UsageRecord]) -> None:
    ends_ms = FIRST_MS + PLAN.days * 86_400_000
    keys = Counter(
        (each.time_ms, each.instance, each.broker, each.user, each.client_id, each.api) for each in records
    )
    assert set(keys.values()) == {1}
    for each in records:
        assert FIRST_MS <= each.time_ms < ends_ms
        assert each.api in GROUPS
        assert 0 <= each.broker < PLAN.brokers
        assert each.requests > 0 < each.sessions
        assert each.charged_bytes == {"produce": each.bytes_in, "fetch": each.bytes_out}.get(each.api, 0)
        assert (each.mutations > 0) == (each.api == "mutations")


def test_few_generated_clients_send_most_of_the_traffic(records: list[UsageRecord]) -> None:
    """Of Zipf's law with 300 clients, the first ten have 47 % (10th and 300th harmonic number)."""
    most = Counter((each.user, each.client_id) for each in records).most_common(10)
    assert 0.35 < sum(count for _client, count in most) / len(records) < 0.6


def test_generated_clients_are_distinct_pairs_of_user_and_client_id() -> None:
    plan = Plan()
    assert len(set(zip(users(plan), client_ids(plan), strict=True))) == plan.entities


def test_the_generated_delta_table_holds_the_records_of_the_json_files(
    records: list[UsageRecord], tmp_path: Path
) -> None:
    write_delta(PLAN, tmp_path)
    rows = pl.scan_parquet(tmp_path / "**/*.parquet", hive_partitioning=True)
    found = rows.select("time_ms", "user", "client_id", "bytes_in", "throttle_ms").collect()
    by_hand = Counter(
        (each.time_ms, each.user, each.client_id, each.bytes_in, each.throttle_ms.producer_byte_rate)
        for each in records
    )
    assert Counter((*row[:4], row[4]["producer_byte_rate"]) for row in found.iter_rows()) == by_hand
    assert {path.parent.name for path in tmp_path.rglob("*.parquet")} == {
        "day=2026-01-01",
        "day=2026-01-02",
    }


def test_results_of_two_engines_are_compared(tmp_path: Path) -> None:
    """Polars' roll-up, put where Spark's would be, is pandas' roll-up; a figure that is off is found."""
    usage, lake, other = (tmp_path / name for name in ("usage", "lake", "pandas"))
    other.mkdir()
    (lake / "rollup").mkdir(parents=True)
    write_delta(PLAN, usage)
    with_pandas(usage, other)
    with_polars(usage, lake / "rollup")
    for period, seconds in PERIODS.items():
        file = lake / "rollup" / f"{period}.parquet"
        (lake / "rollup" / f"seconds={seconds}").mkdir()
        file.rename(lake / "rollup" / f"seconds={seconds}" / "part.parquet")
    assert differences(lake, other) == []
    rows = pl.read_parquet(other / "day.parquet")
    off = rows.with_columns(
        pl.when(pl.int_range(pl.len()) == 0).then(-1).otherwise("requests").alias("requests")
    )
    off.write_parquet(other / "day.parquet")
    assert differences(lake, other) == ["day: requests differs in 1 rows"]
    rows.slice(1).write_parquet(other / "day.parquet")
    assert "day: alone differs in 1 rows" in differences(lake, other)


def test_whole_numbers_are_compared_exactly(tmp_path: Path) -> None:
    entity = {"cluster": "c", "level": "user", "user": "u", "client_id": "c", "broker": 1}
    row = {**entity, "start_ms": 0, "requests": 10**12, "active_s": 1.5}
    for period, seconds in PERIODS.items():
        directory = tmp_path / "lake" / "rollup" / f"seconds={seconds}"
        directory.mkdir(parents=True)
        pl.DataFrame([row]).write_parquet(directory / "part.parquet")
        other = row | {"requests": 10**12 + (period == "day"), "active_s": 1.5 + 1e-12}
        pl.DataFrame([other]).write_parquet(tmp_path / f"{period}.parquet")
    assert differences(tmp_path / "lake", tmp_path) == ["day: requests differs in 1 rows"]


def test_an_unknown_job_name_is_refused() -> None:
    result = CliRunner().invoke(main, ["--jobs", "rollup,sleep"])
    assert result.exit_code == 2
    assert "sleep; known: ingest, rollup" in result.output


def test_the_replay_job_has_a_limit_for_each_generated_client() -> None:
    table = parse(QUOTAS)
    limits = {table.limits(QuotaKey.CONSUMER_BYTE_RATE).resolve("user-00000", name) for name in ("a", "b")}
    assert None not in limits
    assert len(limits) == 2, "each client-id has its own budget"


@pytest.mark.parametrize("names", [[], ["recorded"]], ids=["no rows", "recorded hours only"])
def test_a_replay_without_hours_of_its_quota_file_is_refused(names: list[str]) -> None:
    with pytest.raises(JobError, match="nothing was replayed"):
        measured(_outcome(names), "replay")


def test_a_replay_with_hours_of_its_quota_file_is_measured() -> None:
    assert measured(_outcome(["recorded", NAME]), "replay") == 1.5
    assert measured(b'{"seconds": 2.5}', "ingest") == 2.5


def _outcome(names: list[str]) -> bytes:
    """Return the outcome of a replay with one row for each of these names of quota files."""
    rows = [["producer_byte_rate", name, "0", 0, 0, "0.0", "0.0", 0] for name in names]
    return msgspec.json.encode({"seconds": 1.5, "listings": [{"title": "by quota", "rows": rows}]})
