"""The recommend job on Spark: hand-computed values, hostile names, capacity, current quotas, and the file."""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, TypeAlias

import pytest
from click.testing import CliRunner

from weir.cli.main import weir
from weir.pipeline import tables
from weir.pipeline.lake import Lake
from weir.pipeline.outcome import Outcome, PipelineError
from weir.pipeline.recommend.capacity import factors, proposed, wanted
from weir.pipeline.recommend.flags import CUT, MOSTLY_THROTTLED, NEVER_NEAR, NEW, ONE_OFF, THROTTLED_AT_PEAK
from weir.pipeline.recommend.job import recommend
from weir.pipeline.recommend.need import by_quota, hours, needs, unresolved
from weir.pipeline.recommend.plan import ANONYMOUS, Plan
from weir.quotas import DEFAULT, Entity, Prefix, QuotaKey, QuotaTable, parse
from weir.quotas.table.bounded_names import OVERFLOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
REQUESTS, MUTATIONS = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
NOW = datetime(2026, 11, 22, 2, 0, tzinfo=UTC)
EVERYBODY = Entity(DEFAULT, DEFAULT)
DAY = date(2026, 11, 20)
MB = 1_000_000.0
NOON_MS = 1_795_176_000_000
"""2026-11-20 12:00 UTC (ms)."""
HOUR_MS = 3_600_000

Row: TypeAlias = dict[str, object]


def hour(
    user: str | None,
    client_id: str | None,
    *,
    number: int = 0,
    produce: float = 0.0,
    fetch: float = 0.0,
    p99: float | None = None,
    throttled_s: float = 0.0,
    broker: int = 1,
) -> Row:
    """Return an hour of an entity; by default the p99 is 0.9 and the p50 half of the highest rate."""

    def rate(largest: float) -> Row:
        its_p99 = 0.9 * largest if p99 is None else p99
        return {"mean": largest / 4, "p50": largest / 2, "p95": 0.8 * largest, "p99": its_p99, "max": largest}

    level = "client-id" if user is None else "user" if client_id is None else "user-client-id"
    start_ms = NOON_MS + number * HOUR_MS
    return {
        "level": level,
        "user": user,
        "client_id": client_id,
        "start_ms": start_ms,
        "seconds": 3600,
        "producer_byte_rate": rate(produce),
        "consumer_byte_rate": rate(fetch),
        "request_percentage": rate(0.0),
        "active_s": 100.0,
        "throttled_s": {"producer_byte_rate": throttled_s},
        "busiest_broker": broker,
        "day": datetime.fromtimestamp(start_ms / 1000, UTC).date(),
    }


Run: TypeAlias = "Callable[..., tuple[Outcome, str]]"


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    """Write these hours and recommend; return the outcome and the file's text ("" without a file)."""

    def run(rows: Iterable[Row], **options: object) -> tuple[Outcome, str]:
        lake = Lake(str(tmp_path / "lake"))
        frame = spark.createDataFrame(list(rows), tables.ROLLUP)
        tables.replace(frame, lake.rollup("hour"), "day")
        written: list[str] = []
        plan = Plan(**{"now": NOW, "headroom": 1.5, "quotas": (PRODUCE, FETCH), **options})  # type: ignore[arg-type]  # fields by name
        return recommend(spark, lake, plan, written.extend), "".join(written)

    return run


def own(table: QuotaTable) -> dict[tuple[Entity, QuotaKey], float]:
    """Return the proposals outside the default entry."""
    return {quota: value for quota, value in table.values.items() if quota[0] != EVERYBODY}


def flagged(outcome: Outcome) -> dict[object, object]:
    """Return the number of proposals by flag."""
    return {
        row[0]: row[1] for listing in outcome.listings if listing.title == "flags" for row in listing.rows
    }


def test_a_recommended_entry_is_a_percentile_times_headroom(run: Run) -> None:
    rows = [
        hour("alice", "app", produce=2 * MB, fetch=0.1 * MB),
        hour("alice", "app", number=2, produce=3 * MB, broker=3),
        hour("alice", "app", number=3, produce=1 * MB),
    ]
    outcome, text = run(rows, growth=0.2)
    # the busiest hour's p99 is 0.9 * 3 MB/s; 2.7 MB/s * 1.2 * 1.5
    assert parse(text) == QuotaTable(
        {
            (EVERYBODY, PRODUCE): MB,
            (EVERYBODY, FETCH): MB,
            (Entity("alice", "app"), PRODUCE): 4_860_000.0,
        }
    )
    assert (
        "# p99 of the busiest hour, 2026-11-20 14:00 UTC, busiest on broker 3: 2.70 MB/s; "
        "x 1.2 growth x 1.5 headroom\n"
        "producer_byte_rate = 4860000\n"
    ) in text
    assert text.startswith("# Recommended by `weir pipeline recommend`, 2026-11-22 02:00 UTC.\n")
    assert outcome.read == {"hours": 3, "entities": 1}
    assert outcome.wrote == {"entries": 1, "proposals": 2}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"percentile": 50}, 1.5 * MB),
        ({"percentile": 100}, 3 * MB),
        ({"percentile": 100, "hours_percentile": 50.0}, 2 * MB),  # of 1, 2, 3 MB/s
        ({"percentile": 100, "hours_percentile": 75.0}, 2.5 * MB),  # half way from 2 to 3
    ],
)
def test_recommend_computes_the_chosen_statistic_of_usage(
    spark: SparkSession, options: Row, expected: float
) -> None:
    rows = [
        hour("a", "b", produce=2 * MB),
        hour("a", "b", number=1, produce=1 * MB),
        hour("a", "b", number=2),  # hours without such use do not count
        hour("a", "b", number=13, produce=3 * MB),
    ]
    plan = Plan(**{"now": NOW, "quotas": (PRODUCE,), **options})  # type: ignore[arg-type]  # fields by name
    used = unresolved(by_quota(spark.createDataFrame(rows, tables.ROLLUP), plan))
    assert [row["used"] for row in needs(used, plan).collect()] == [expected]


HOSTILE = [
    "[[quota]]",
    "\n[[quota]]\nuser = 'x'",
    '"',
    "'''",
    '"""\n]]',
    "# no comment",
    "a\r\nb",
    "\x00\x1f\x7f\x85\u2028",
    "été 日本 😀",
    "\\u0041",
    "x" * 300,
    " ",
]
UNSAYABLE = ["", "<default>", "<others>", "s" * 191 + "~" + "0f" * 32, "\ufffd"]


def test_every_recommended_name_has_an_entry_or_is_counted_as_omitted(run: Run) -> None:
    rows = [hour("u", name, produce=10 * MB) for name in (*HOSTILE, *UNSAYABLE)]
    rows += [hour(name, "c", produce=10 * MB) for name in (*HOSTILE, *UNSAYABLE)]
    outcome, text = run(rows)
    table = parse(text)
    assert {entity for entity, _key in own(table)} == {
        *(Entity("u", name) for name in HOSTILE),
        *(Entity(name, "c") for name in HOSTILE),
    }
    assert outcome.wrote["entries"] == 2 * len(HOSTILE)
    assert {note for note in outcome.notes if "cannot have" in note} == {
        f"2 entities {why}: they cannot have an entry"
        for why in (
            "without a name",
            "called <default>",
            "counted as <others>",
            "with a name that was shortened",
            "with a name that is no text",
        )
    }


def test_recommend_leaves_entities_below_the_floor_to_the_default(run: Run) -> None:
    rows = [hour("a", "small", produce=1000.0), hour("a", "zero"), hour("a", "big", produce=2 * MB)]
    outcome, text = run(rows, percentile=100)
    assert own(parse(text)) == {(Entity("a", "big"), PRODUCE): 3 * MB}
    assert "# Entries: 1 of entities; 2 more are left to the default entry.\n" in text
    assert outcome.wrote == {"entries": 1, "proposals": 6}


def test_recommend_lists_equal_proposals_by_their_use(run: Run) -> None:
    outcome, _text = run([hour("adam", "app", produce=1000.0), hour("zoe", "app", produce=MB / 2)])
    (listing,) = (each for each in outcome.listings if "largest" in each.title)
    assert [row[0] for row in listing.rows if row[2] == PRODUCE.value] == ["zoe", "adam"]


def test_recommend_without_a_default_writes_an_entry_for_every_entity(run: Run) -> None:
    _outcome, text = run([hour("a", "small", produce=1000.0)], with_default=False)
    assert parse(text) == QuotaTable({(Entity("a", "small"), PRODUCE): MB, (Entity("a", "small"), FETCH): MB})
    assert "raised to the floor" in text
    assert "# no use; raised to the floor\nconsumer_byte_rate = 1000000\n" in text


def test_recommend_cuts_proposals_beyond_the_capacity_by_one_factor(run: Run) -> None:
    rows = [hour("a", name, produce=size * MB) for name, size in (("x", 7), ("y", 3), ("z", 0))]
    outcome, text = run(rows, percentile=100, headroom=1.0, capacity={PRODUCE: 4 * MB}, over_commitment=1.75)
    # floors 3, wanted 7 + 3 + 1 = 11, room 7: half of the parts above the floors: 6 / 2 and 2 / 2
    assert own(parse(text)) == {(Entity("a", "x"), PRODUCE): 4 * MB, (Entity("a", "y"), PRODUCE): 2 * MB}
    assert flagged(outcome) == {CUT: 2}
    assert "cut to 50.0% of what is above the floor, to fit the capacity" in text


def test_proposals_fit_the_capacity_reach_the_floor_and_grow_with_headroom(spark: SparkSession) -> None:
    rng = random.Random(8)
    used = [0.0, 1e-9, 0.004, 1e6, 1e15, *(rng.lognormvariate(12, 3) for _ in range(200))]
    rows = [(key.value, value, False) for key in (PRODUCE, REQUESTS) for value in used]
    frame = spark.createDataFrame(rows, "quota string, used double, is_one_off boolean")
    room = {PRODUCE: 4e9, REQUESTS: 50_000.0}
    before: dict[tuple[str, float], float] = {}
    for headroom in (1.0, 1.3, 4.0):
        plan = Plan(now=NOW, quotas=(PRODUCE, REQUESTS), headroom=headroom, capacity=room)
        needed = frame.withColumn("wanted", wanted(plan))
        cuts = factors(needed, plan, {})
        found = needed.withColumn("proposed", proposed(plan, cuts)).collect()
        for key in room:
            values = [row["proposed"] for row in found if row["quota"] == key.value]
            assert room[key] * 0.99 < sum(values) <= room[key] * (1 + 1e-12)
            assert min(values) == plan.floor(key)
        assert all(row["proposed"] % 1 == 0 for row in found if row["quota"] == PRODUCE.value)
        needs_now = {(row["quota"], row["used"]): row["wanted"] for row in found}
        assert all(needs_now[each] >= value for each, value in before.items())
        assert all(value >= min(each[1] * headroom, 9e16) * (1 - 1e-6) for each, value in needs_now.items())
        before = needs_now


def test_recommend_refuses_floors_beyond_the_capacity(run: Run) -> None:
    with pytest.raises(PipelineError, match=r"producer_byte_rate: the floors alone are 3000000, .* 2000000"):
        run([hour("a", name) for name in "xyz"], capacity={PRODUCE: 2 * MB})


def test_recommend_flags_idle_near_throttled_and_new_entities(
    run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    current = parse(
        "[[quota]]\nuser = '<default>'\nclient_id = '<default>'\nproducer_byte_rate = 20_000_000\n"
    )
    rows = [
        hour("a", "idle", produce=3 * MB),
        hour("a", "near", produce=4 * MB),  # a fifth of the quota counts as near
        hour("a", "held", produce=20 * MB, throttled_s=51.0),
        hour("a", "seldom held", produce=20 * MB, throttled_s=50.0),
        hour("a", "seldom held", number=1, produce=19 * MB),
        hour("a", "held before", produce=10 * MB, throttled_s=10.0),
        hour("a", "held before", number=1, produce=11 * MB),
        hour("a", "new", number=48, produce=2 * MB),
        hour("a", "near", number=48, produce=4 * MB),
        hour("a", "old", number=47 - 23, produce=20 * MB),
    ]
    run(rows, current=current, current_name="quotas.toml")
    table = tables.read(spark, Lake(str(tmp_path / "lake")).recommendation, tables.RECOMMENDATION)
    found = {
        row["client_id"]: set(row["flags"])
        for row in table.where("quota = 'producer_byte_rate'").select("client_id", "flags").collect()
    }
    assert found == {
        "idle": {NEVER_NEAR},
        "near": set(),
        "held": {MOSTLY_THROTTLED, THROTTLED_AT_PEAK},
        "seldom held": {THROTTLED_AT_PEAK},
        "held before": set(),
        "new": {NEW},
        "old": set(),
    }


def test_recommend_leaves_one_off_client_ids_to_the_default_unless_named(run: Run) -> None:
    current = parse('[[quota]]\nuser = "a"\nclient_id = "named"\nproducer_byte_rate = 5_000_000\n')
    rows = [hour("a", name, produce=10 * MB) for name in ("named", "random-4711")]
    rows += [hour("a", "steady", number=number, produce=10 * MB) for number in range(3)]
    outcome, text = run(rows, min_active_hours=2, current=current, current_name="quotas.toml", percentile=100)
    assert own(parse(text)) == {
        (Entity("a", "named"), PRODUCE): 15 * MB,
        (Entity("a", "steady"), PRODUCE): 15 * MB,
    }
    assert flagged(outcome) == {ONE_OFF: 2, CUT: 1}
    outcome, text = run(rows, min_active_hours=2, with_default=False)
    assert {entity for entity, _ in parse(text).values} == {Entity("a", "steady")}
    assert "2 entities active in too few hours: they cannot have an entry" in outcome.notes


CURRENT = """
[[quota]]
client_id_prefix = "etl-"
producer_byte_rate = 6_000_000
controller_mutation_rate = 2

[[quota]]
user = "bob"
client_id = "quarterly"
producer_byte_rate = 50_000_000

[[quota]]
user = "bob"
client_id = "daily"
producer_byte_rate = 50_000_000
request_percentage = 30.5

[[quota]]
user = "carol"
producer_byte_rate = 4_000_000

[[quota]]
topic = "logs"
producer_byte_rate = 7_000_000

[[quota]]
ip = "10.0.0.1"
connection_creation_rate = 5

[[quota]]
user = "bob"
mode = "shadow"
producer_byte_rate = 123
"""


def test_recommend_writes_one_entry_per_prefix_and_keeps_unrelated_entries(run: Run) -> None:
    rows = [
        hour("alice", "etl-1", produce=2 * MB),
        hour("alice", "etl-2", produce=3 * MB, fetch=4 * MB),
        hour("alice", "etl-3", number=1, produce=4 * MB),
        hour("bob", "daily", produce=10 * MB),
    ]
    outcome, text = run(rows, current=parse(CURRENT), current_name="quotas.toml", percentile=100)
    assert parse(text) == QuotaTable(
        {
            (EVERYBODY, PRODUCE): MB,
            (EVERYBODY, FETCH): MB,
            (Entity("alice", Prefix("etl-")), PRODUCE): 7.5 * MB,  # 2 + 3 in the first hour
            (Entity("alice", "etl-2"), FETCH): 6 * MB,  # the prefix has no such quota
            (Entity("bob", "daily"), PRODUCE): 15 * MB,
            (Entity("bob", "daily"), REQUESTS): 30.5,  # not recommended
            (Entity("bob", "quarterly"), PRODUCE): 50 * MB,  # no usage
            (Entity(DEFAULT, Prefix("etl-")), PRODUCE): 6 * MB,  # without a user the default would outrank it
            (Entity(client_id=Prefix("etl-")), MUTATIONS): 2.0,
            (Entity(topic="logs"), PRODUCE): 7 * MB,
            (Entity(ip="10.0.0.1"), QuotaKey.CONNECTION_CREATION_RATE): 5.0,
        },
        {(Entity("bob"), PRODUCE): 123.0},
    )
    assert "sum of the maximum of 2 client-ids of the busiest hour, 2026-11-20 12:00 UTC" in text
    assert text.count("; now 6.00 MB/s shared with others\n") == 1  # one of several users
    assert text.count("; now 50.00 MB/s\n") == 1
    assert text.count("; now ") == 2  # nothing limits what etl-2 fetches
    (note,) = (note for note in outcome.notes if "dropped" in note)
    assert note == (
        "1 values of quotas.toml are dropped: defaults, or of another level than user-client-id; "
        "the new entries replace them"
    )


def test_the_capacity_of_recommend_includes_kept_entries(run: Run) -> None:
    rows = [hour("bob", "daily", produce=10 * MB)]
    options: Row = {"current": parse(CURRENT), "percentile": 100, "headroom": 1.0}
    _outcome, text = run(rows, **options, capacity={PRODUCE: 56 * MB})
    assert (
        parse(text).values[Entity("bob", "daily"), PRODUCE] == 6 * MB
    )  # 50 are kept for a client without usage


def test_recommend_without_authenticated_users_writes_client_id_entries(run: Run) -> None:
    current = parse(f'[[quota]]\nuser = "{ANONYMOUS}"\nclient_id = "app"\nproducer_byte_rate = 5_000_000\n')
    rows = [hour(ANONYMOUS, None, produce=MB), hour(None, "app", produce=2 * MB), hour(ANONYMOUS, "app")]
    outcome, text = run(rows, current=current, current_name="quotas.toml")
    assert "entries are by client-id: every user is ANONYMOUS (choose with --level)" in outcome.notes
    assert parse(text) == QuotaTable(
        {
            (Entity(client_id=DEFAULT), PRODUCE): MB,
            (Entity(client_id=DEFAULT), FETCH): MB,
            (Entity(client_id="app"), PRODUCE): 2.7 * MB,
        }
    )
    assert "; now 5.00 MB/s\n" in text
    crowd = [hour(OVERFLOW, None, produce=MB), hour(OVERFLOW, OVERFLOW, produce=MB)]
    assert any(note.startswith("entries are by client-id: ") for note in run([*rows, *crowd])[0].notes)
    rows.append(hour("bob", None, produce=MB))
    assert any(note.startswith("entries are by user-client-id: ") for note in run(rows)[0].notes)
    _outcome, text = run(rows, level="user", percentile=100)
    assert {entity for entity, _key in parse(text).values} == {
        Entity(DEFAULT),
        Entity("bob"),
        Entity(ANONYMOUS),
    }


def test_recommend_command_writes_a_quota_file_and_json(
    run: Run, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run([hour("alice", "a\n]]#", produce=2 * MB), hour("bob", "app", produce=1000.0)])
    shared = contextmanager(lambda *_, **__: iter([spark]))
    monkeypatch.setattr("weir.pipeline.spark.session", shared)
    file = tmp_path / "new.toml"
    command = ["pipeline", "recommend", "--lake", str(tmp_path / "lake"), "--output", str(file)]
    result = CliRunner().invoke(weir, command)
    assert result.exit_code == 0, result.output
    assert ["wrote", "1", "entries", str(file)] in [line.split() for line in result.output.splitlines()]
    assert "the 5 largest of each quota" in result.output
    shown = ["alice", "a\\n]]#", "producer_byte_rate", "1,800,000.0", "-", "2,700,000.0"]
    assert shown in [line.split() for line in result.output.splitlines()]
    listed = CliRunner().invoke(weir, ["quotas", "list", "--quotas", str(file), "--json"])
    assert listed.exit_code == 0
    assert {
        "entity": {"user": "alice", "client_id": "a\n]]#"},
        "mode": "enforce",
        "quotas": {"producer_byte_rate": 2_700_000},
    } in json.loads(listed.stdout)["quotas"]
    result = CliRunner().invoke(weir, [*command, "--force", "--json", "--quotas", "consumer_byte_rate"])
    assert json.loads(result.stdout)["wrote"] == {"entries": 0, "proposals": 2}
    assert parse(file.read_text()) == QuotaTable({(EVERYBODY, FETCH): MB})


def test_recommend_reads_only_the_chosen_days(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    run([hour("a", "b", produce=2 * MB), hour("a", "b", number=24, produce=9 * MB)])
    lake = Lake(str(tmp_path / "lake"))
    plan = Plan(now=NOW, days=(DAY, DAY))
    rows = hours(spark, lake, plan)
    assert [row["day"] for row in rows.select("day").collect()] == [DAY]
    explained = rows._jdf.queryExecution().toString()  # PySpark itself only prints it
    assert "PartitionFilters: [isnotnull(day#" in explained


def test_recommend_without_usage_recommends_nothing(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    run([hour("a", "b", produce=2 * MB)])
    outcome, text = run([hour("a", "b")], days=(date(2020, 1, 1), date(2020, 1, 2)))
    assert text == ""
    assert outcome.notes[0].startswith("no usage from 2020-01-01 to 2020-01-02: quotas.toml is not")
    lake = Lake(str(tmp_path / "lake"))
    assert tables.read(spark, lake.recommendation, tables.RECOMMENDATION).count() == 0
    missing = Lake(str(tmp_path / "missing"))
    assert recommend(spark, missing, Plan(now=NOW), _never).read == {"hours": 0}


def _never(lines: Iterable[str]) -> None:
    raise AssertionError(f"written: {list(lines)}")
