"""The replay job, from tables of usage or traces and quota files to hours of budgets."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.replay_inputs import SUNDAY_MS, file, put, used
from tests.pipeline.session_cases import CASES
from tests.pipeline.sessions import Habits, World
from weir.pipeline.lake import Lake, read
from weir.pipeline.outcome import Outcome
from weir.pipeline.replay.candidates import RECORDED
from weir.pipeline.replay.job import ReplayOptions, replay
from weir.pipeline.tables import REPLAY
from weir.quotas import Entity, QuotaTable, parse
from weir.quotas.replay_hours import HOUR_MS
from weir.usage.records import ByQuota

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

IN_FORCE = "".join(
    f"""
[[quota]]
client_id = "{client_id}"
producer_byte_rate = 8000
consumer_byte_rate = 6000
request_percentage = 0.06
"""
    for client_id in ("app", "producer", "consumer")
)
LOOSE = """
[[quota]]
user = "ANONYMOUS"
producer_byte_rate = 1_000_000
consumer_byte_rate = 1_000_000
"""
DAY_MS = 24 * HOUR_MS
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


@dataclass
class Replayed:
    world: World
    outcome: Outcome
    hours: list[Row]
    of_usage: list[Row]

    def sums(self, candidate: str, quota: str) -> tuple[int, int, float, int]:
        """Return violations, throttle times (ms), throttled time (s), requests given up."""
        rows = [
            row
            for row in self.hours
            if (row.candidate, row.quota) == (candidate, quota) and row.client_id not in CASES
        ]
        assert all(row.throttle_ms_lower == row.throttle_ms_upper for row in rows)
        throttled_s = round(sum(row.throttled_s_upper for row in rows), 3)
        return (
            sum(row.violations for row in rows),
            sum(row.throttle_ms_upper for row in rows),
            throttled_s,
            sum(row.given_up for row in rows),
        )


@pytest.fixture(scope="module")
def replayed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    """Outcomes of replays: traces under the quotas in force and under a loose candidate; usage under the
    quotas in force.

    The lake also has the traces of each case of `test_replay_of_sessions`, from separate instances of Weir.
    """
    world = World(parse(IN_FORCE))
    world.join(Habits(b"app", "all in turn", connections=6, under_way=2))
    world.join(Habits(b"producer", "produce", connections=2, from_ms=5000))
    world.join(Habits(b"consumer", "fetch", connections=2, from_ms=7000))
    worlds, quotas = [world.run(120_000)], IN_FORCE
    for case, (key, limit, habits) in CASES.items():
        quotas += f'[[quota]]\nclient_id = "{case}"\n{key.value} = {limit:g}\n'
        table = QuotaTable({(Entity(client_id=case), key): limit})
        habits = dataclasses.replace(habits, client_id=case.encode())
        worlds.append(World(table, instance=case).join(habits).run(60_000))
    directory = tmp_path_factory.mktemp("lake")
    lake = Lake(str(directory))
    put(spark, lake, [trace for world in worlds for trace in world.traces])
    put(spark, lake, [record for world in worlds for record in world.usage])
    files = [file(directory, "in-force.toml", quotas), file(directory, "loose.toml", LOOSE)]
    replay(spark, lake, files[:1], ReplayOptions(source="usage"))
    of_usage = read(spark, lake.replay, REPLAY).collect()
    outcome = replay(spark, lake, files, ReplayOptions(source="trace"))
    hours = read(spark, lake.replay, REPLAY).collect()
    return Replayed(world, outcome, hours, of_usage)


@pytest.mark.parametrize("quota", QUOTAS)
def test_replay_under_the_quotas_in_force_equals_the_recording(replayed: Replayed, quota: str) -> None:
    told = [getattr(trace.throttle_ms, quota) for trace in replayed.world.traces]
    violations, throttle_ms, throttled_s, given_up = replayed.sums("in-force.toml", quota)
    assert (violations, throttle_ms, given_up) == (sum(wait > 0 for wait in told), sum(told), 0)
    assert violations > 10, "somebody waits"
    assert replayed.sums(RECORDED, quota) == (violations, throttle_ms, throttled_s, 0)


def test_replay_and_recording_cover_the_same_budgets_and_hours(replayed: Replayed) -> None:
    """The simulation spans the end of an hour; all users of a client-id share its quota."""
    budgets = {
        name: {
            (row.quota, row.user, row.client_id, row.broker, row.start_ms, row.charges, row.throttled_s_upper)
            for row in replayed.hours
            if row.candidate == name
        }
        for name in (RECORDED, "in-force.toml")
    }
    assert budgets["in-force.toml"] <= budgets[RECORDED]
    unlimited = budgets[RECORDED] - budgets["in-force.toml"]
    assert not any(throttled_s for *_budget, throttled_s in unlimited)
    assert len({start for _q, _u, _c, _b, start, *_ in budgets[RECORDED]}) == 2


def test_replay_knows_no_throttles_of_flat_out_clients_under_a_loose_candidate(replayed: Replayed) -> None:
    rows = [row for row in replayed.hours if row.candidate == "loose.toml"]
    assert {(row.quota, row.user, row.client_id, row.limit) for row in rows} == {
        ("producer_byte_rate", "ANONYMOUS", None, 1e6),
        ("consumer_byte_rate", "ANONYMOUS", None, 1e6),
    }
    assert not any(row.violations or row.first_ms for row in rows)
    assert {row.demand for row in rows} == {"unknown"}, "the limit is 100 times the recorded use"
    assert {(row.throttle_ms_lower, row.throttled_s_upper) for row in rows} == {(None, None)}
    charged = [row.charged for row in replayed.hours if row.candidate == RECORDED and row.quota in QUOTAS[:2]]
    assert sum(row.charged for row in rows) == sum(charged), "everybody's bytes"


def test_replay_notes_demand_that_recorded_throttles_held_back(replayed: Replayed) -> None:
    held_back = [note for note in replayed.outcome.notes if "is unknown" in note]
    assert [note.split(":")[0] for note in held_back] == [*QUOTAS, "old_read_byte_rate"]
    assert "traces have 100 % of the requests in the usage records of these days" in replayed.outcome.notes


@pytest.mark.parametrize("client", [*CASES, *(f"app, {quota}" for quota in QUOTAS[1:])])
def test_replay_of_one_second_usage_is_close_to_that_of_traces(replayed: Replayed, client: str) -> None:
    """Throttled time is within 25 %, the sum of throttle times within 40 %."""
    client_id, _, quota = client.partition(", ")
    key = quota or CASES[client][0].value

    def sums(hours: list[Row], candidate: str) -> tuple[float, float]:
        rows = [r for r in hours if (r.candidate, r.client_id, r.quota) == (candidate, client_id, key)]
        told_ms = sum(row.throttle_ms_upper for row in rows)
        return told_ms / 1000, sum(row.throttled_s_upper for row in rows)

    trace, usage = sums(replayed.hours, "in-force.toml"), sums(replayed.of_usage, "in-force.toml")
    told, recorded = sums(replayed.hours, RECORDED), sums(replayed.of_usage, RECORDED)
    throttle, throttled = (of_usage / of_trace - 1 for of_usage, of_trace in zip(usage, trace, strict=True))
    print(
        f"| {client} | {trace[0]:.1f} s | {throttle:+.0%} | {trace[1]:.1f} s | {throttled:+.0%} |"
        f" {recorded[1] / told[1] - 1:+.0%} |"
    )
    assert trace == told
    assert abs(throttle) < 0.4
    assert abs(throttled) < 0.25


def test_replayed_budgets_are_per_weir_and_broker_and_span_midnight(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The first client is charged 15,000 bytes, half at 0.5 s and half at 1.5 s. Its quota of 1000 bytes/s
    allows 10,000 bytes in a window of 10 s. The reader's old bytes are charged alike. The charges are in the
    last second of a Saturday and the first of a Sunday. The second client's halves are at two brokers, the
    third's at two instances of Weir. Mutations have one bucket: the first 20 take its 11 tokens; half a
    second later, the next 20 lack 8.5.

    A client without a limit has recorded waits of 600 ms at 0.25 s and 0.75 s, which overlap by 100 ms.
    """
    lake, half = Lake(str(tmp_path)), {"charged_bytes": 7500}
    waited = {"throttle_ms": ByQuota(producer_byte_rate=1200), "violations": ByQuota(producer_byte_rate=2)}
    records = [
        used(SUNDAY_MS - 1000, **half),
        used(SUNDAY_MS, **half),
        used(SUNDAY_MS - 1000, client_id="reader", api="fetch", old_bytes=7500),
        used(SUNDAY_MS, client_id="reader", api="fetch", old_bytes=7500, charged_bytes=10**6),
        used(SUNDAY_MS - 1000, client_id="brokers", **half),
        used(SUNDAY_MS, client_id="brokers", broker=1, **half),
        used(SUNDAY_MS - 1000, client_id="weirs", **half),
        used(SUNDAY_MS, client_id="weirs", instance="weir-2", **half),
        used(SUNDAY_MS, client_id="creator", api="mutations", mutations=20),
        used(SUNDAY_MS, client_id="creator", api="mutations", mutations=20, broker=1),
        used(SUNDAY_MS - 10 * DAY_MS, client_id="before", charged_bytes=10**6),
        used(SUNDAY_MS, client_id="unlimited", user="bob", charged_bytes=10**9, **waited),
    ]
    put(spark, lake, records)
    quotas = (
        '[[quota]]\nuser = "alice"\nclient_id = "<default>"\n'
        "producer_byte_rate = 1000\ncontroller_mutation_rate = 1\nold_read_byte_rate = 1000\n"
    )
    options = ReplayOptions(days=(date(2025, 11, 22), date(2025, 11, 23)))
    outcome = replay(spark, lake, [file(tmp_path, "q.toml", quotas)], options)
    hours = read(spark, lake.replay, REPLAY).collect()
    rows = [row for row in hours if row.candidate == "q.toml"]
    waits = sorted((row.client_id, row.broker, row.start_ms, row.throttle_ms_upper) for row in rows)
    saturday, sunday = SUNDAY_MS - HOUR_MS, SUNDAY_MS
    assert waits == [
        ("app", 0, saturday, 0),
        ("app", 0, sunday, 5000),
        ("brokers", 0, saturday, 0),
        ("brokers", 1, sunday, 0),
        ("creator", None, sunday, 8500),
        ("reader", 0, saturday, 0),
        ("reader", 0, sunday, 5000),
        ("weirs", 0, saturday, 0),
        ("weirs", 0, sunday, 0),
    ]
    (creator,) = (row for row in rows if row.client_id == "creator")
    assert (creator.charged, creator.charges) == (40.0, 3), "one of them once more, 8.5 s later"
    (bob,) = (row for row in hours if row.user == "bob")
    assert (bob.candidate, bob.client_id, bob.throttled_s_upper) == (RECORDED, "unlimited", 1.1)
    assert outcome.read == {"records": 11}, "not those of other days"


def test_replays_of_clusters_are_kept_apart(spark: SparkSession, tmp_path: Path) -> None:
    """Two clusters with brokers and clients of the same names; only the second one exceeds the quota."""
    lake = Lake(str(tmp_path / "lake"))
    text = '[[quota]]\nuser = "alice"\nproducer_byte_rate = 1000\n[[group]]\nname = "g"\nusers = ["al*"]\n'
    quotas = file(tmp_path, "q.toml", text + '[[quota]]\ngroup = "g"\nproducer_byte_rate = 1200\n')
    put(spark, lake, [used(SUNDAY_MS, charged_bytes=10_000)])
    put(spark, lake, [used(SUNDAY_MS, charged_bytes=20_000)], cluster="other")
    outcomes = [replay(spark, lake, [quotas], ReplayOptions(cluster=name)) for name in ("default", "other")]
    assert [outcome.read["records"] for outcome in outcomes] == [1, 1]
    hours = read(spark, lake.replay, REPLAY).where("candidate = 'q.toml'")
    assert [
        (row.cluster, row.user, row.group, row.charged, row.throttle_ms_upper)
        for row in hours.orderBy("cluster", "user").collect()
    ] == [
        ("default", None, "g", 10_000.0, 0),
        ("default", "alice", None, 10_000.0, 0),
        ("other", None, "g", 20_000.0, 6667),
        ("other", "alice", None, 20_000.0, 10_000),
    ]
    listed = [outcome.listings[0].rows for outcome in outcomes]
    assert [sum(row[1] == "q.toml" for row in rows) for rows in listed] == [1, 1]


def test_replay_accepts_candidate_names_that_equal_column_names(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    put(spark, lake, [used(SUNDAY_MS, charged_bytes=20_000)])
    one_byte = '[[quota]]\nuser = "alice"\nproducer_byte_rate = 1\n'
    names = ("broker", "Recorded", "q.toml", "Q.toml", os.fsdecode(b"\xff`.toml"))
    outcome = replay(spark, lake, [file(tmp_path, name, one_byte) for name in names])
    budgets = outcome.listings[1]
    assert budgets.columns[-5:] == ("broker", "Recorded", "q.toml", "Q.toml", "?`.toml")
    (row,) = budgets.rows
    assert len(set(row[-5:])) == 1, "the files say the same"


def test_replay_of_enormous_numbers_writes_a_bounded_number_of_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The numbers are the largest that ingest accepts: a trillion connections in a record, and a wait of
    31,000 years.
    """
    lake = Lake(str(tmp_path / "lake"))
    most: dict[str, object] = {"requests": 10**15, "sessions": 10**15, "charged_bytes": 10**15}
    waits = {"throttle_ms": ByQuota(producer_byte_rate=10**15), "violations": ByQuota(producer_byte_rate=1)}
    put(spark, lake, [used(SUNDAY_MS, **most), used(SUNDAY_MS, user="bob", **waits)])
    quotas = '[[quota]]\nuser = "alice"\nproducer_byte_rate = 1000\n'
    replay(spark, lake, [file(tmp_path, "q.toml", quotas)])
    hours = read(spark, lake.replay, REPLAY).collect()
    (charged,) = {row.charged for row in hours if row.candidate == RECORDED and row.user == "alice"}
    assert charged == 10**15
    assert sum(row.throttled_s_upper for row in hours if row.user == "bob") == (2**31 - 1) / 1000
