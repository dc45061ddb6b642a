"""The recommend job on Spark: hand-computed values, hostile names, capacity, current quotas, and the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from click.testing import CliRunner

from weir.cli.main import weir
from weir.pipeline import tables
from weir.pipeline.lake import Lake, read, replace
from weir.pipeline.outcome import Outcome, PipelineError
from weir.pipeline.recommend.flags import CUT, FEW, HELD_BACK, NEVER_NEAR, NEW, ONE_OFF
from weir.pipeline.recommend.job import recommend
from weir.pipeline.recommend.plan import ANONYMOUS, RecommendationPlan
from weir.pipeline.rollup.columns import QUOTAS, ROLLUP
from weir.quotas import DEFAULT, Entity, Prefix, QuotaKey, QuotaTable, parse
from weir.quotas.table.bounded_names import OVERFLOW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
REQUESTS, MUTATIONS = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
NOW = datetime(2026, 11, 22, 2, 0, tzinfo=UTC)
EVERYBODY = Entity(DEFAULT, DEFAULT)
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
    cluster: str = "default",
) -> Row:
    """Return an hour of an entity at a broker; by default the p99 is 0.9 and the p50 half of the highest
    rate.
    """

    def rate(largest: float) -> Row:
        its_p99 = 0.9 * largest if p99 is None else p99
        return {"p50": largest / 2, "p95": 0.8 * largest, "p99": its_p99, "max": largest}

    level = "client-id" if user is None else "user" if client_id is None else "user-client-id"
    start_ms = NOON_MS + number * HOUR_MS
    throttled = {**dict.fromkeys(QUOTAS, 0), "producer_byte_rate": throttled_s}
    return {
        **dict.fromkeys(ROLLUP.names),
        "cluster": cluster,
        "level": level,
        "user": user,
        "client_id": client_id,
        "broker": broker,
        "start_ms": start_ms,
        "seconds": 3600,
        "produced_bytes": int(produce * 900),
        "fetched_bytes": int(fetch * 900),
        "producer_byte_rate": rate(produce),
        "consumer_byte_rate": rate(fetch),
        "request_percentage": rate(0.0),
        "active_s": 100.0,
        "throttled_s": {name: float(value) for name, value in throttled.items()},
        "throttle_ms": {name: int(value * 1000) for name, value in throttled.items()},
        "day": datetime.fromtimestamp(start_ms / 1000, UTC).date(),
    }


Run: TypeAlias = "Callable[..., tuple[Outcome, str]]"


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    """Write these hours and recommend; return the outcome and the file's text ("" without a file)."""

    def run(rows: Iterable[Row], **options: object) -> tuple[Outcome, str]:
        lake = Lake(str(tmp_path / "lake"))
        replace(spark.createDataFrame(list(rows), ROLLUP), lake.rollup)
        written: list[str] = []
        values = {"now": NOW, "headroom": 1.5, "hours_percentile": 100, "quotas": (PRODUCE, FETCH), **options}
        plan = RecommendationPlan(**values)  # type: ignore[arg-type]  # fields by name
        return recommend(spark, lake, plan, written.extend), "".join(written)

    return run


def own(table: QuotaTable) -> dict[tuple[Entity, QuotaKey], float]:
    return {quota: value for quota, value in table.values.items() if quota[0] != EVERYBODY}


def flagged(outcome: Outcome) -> dict[object, object]:
    return {row[0]: row[1] for each in outcome.listings if each.title == "flags" for row in each.rows}


def test_a_recommended_entry_is_a_percentile_times_headroom(run: Run) -> None:
    rows = [
        hour("alice", "app", produce=2 * MB, fetch=0.1 * MB),
        hour("alice", "app", number=2, produce=3 * MB, broker=3),
        hour("alice", "app", number=3, produce=1 * MB),
    ]
    outcome, text = run(rows, growth=0.2)
    # the busiest hour's p99 is 0.9 * 3 MB/s; 2.7 MB/s * 1.2 * 1.5
    assert parse(text) == QuotaTable(
        {(EVERYBODY, PRODUCE): MB, (EVERYBODY, FETCH): MB, (Entity("alice", "app"), PRODUCE): 4_860_000.0}
    )
    assert (
        "# p99 of the busiest hour, 2026-11-20 14:00 UTC, at broker 3: 2.70 MB/s; "
        "x 1.2 growth x 1.5 headroom\n"
        "producer_byte_rate = 4860000\n"
    ) in text
    assert text.startswith("# Recommended by `weir pipeline recommend`, 2026-11-22 02:00 UTC.\n")
    assert "12:00 UTC to 2026-11-20 16:00 UTC; 1 entity, a user-client-id.\n" in text
    assert outcome.read == {"hours": 3, "entities": 1}
    assert outcome.wrote == {"entries": 1, "proposals": 2}


def test_a_rate_of_old_reads_is_recommended_if_it_is_named(run: Run) -> None:
    """The p99 of the busiest hour, 2.7 MB/s, times a headroom of 1.5."""
    old = QuotaKey.OLD_READ_BYTE_RATE
    read = {"p50": MB, "p95": 2.5 * MB, "p99": 2.7 * MB, "max": 3 * MB}
    rows = [{**hour("alice", "app", number=1), "old_bytes": 900_000_000, old.value: read}, hour("bob", "app")]
    _outcome, text = run(rows, quotas=(old,))
    assert parse(text) == QuotaTable({(EVERYBODY, old): MB, (Entity("alice", "app"), old): 4_050_000.0})


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
        *(Entity("u"), Entity("u", DEFAULT)),  # for clients of this user without a client-id
    }
    assert outcome.wrote["entries"] == 2 * len(HOSTILE) + 1
    assert {note for note in outcome.notes if "cannot have" in note} == {
        "1 entity without a name: it cannot have an entry"
    } | {
        f"2 entities {why}: they cannot have an entry"
        for why in (
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
    assert "12:00 UTC to 2026-11-20 13:00 UTC; 3 entities, each user-client-id.\n" in text
    assert "# Entries: 1 of entities; 2 more are left to the default entry.\n" in text
    assert outcome.wrote == {"entries": 1, "proposals": 6}


def test_recommend_without_a_default_writes_an_entry_for_every_entity(run: Run) -> None:
    _outcome, text = run([hour("a", "small", produce=1000.0)], with_default=False)
    assert parse(text) == QuotaTable({(Entity("a", "small"), PRODUCE): MB, (Entity("a", "small"), FETCH): MB})
    assert "raised to the floor" in text
    assert "# no use; raised to the floor\nconsumer_byte_rate = 1000000\n" in text


def test_capacity_lowers_the_largest_of_a_full_hour_only(run: Run) -> None:
    rows = [hour("a", name, produce=size * MB) for name, size in (("x", 7), ("y", 3), ("z", 0))]
    rows += [hour("a", name, produce=6 * MB, broker=broker) for broker, name in ((2, "v"), (3, "w"))]
    outcome, text = run(rows, percentile=100, headroom=1.0, capacity={PRODUCE: 4 * MB}, over_commitment=1.75)
    # room 7: y keeps its 3; v and w are alone at their brokers
    assert own(parse(text)) == {
        (Entity("a", "x"), PRODUCE): 4 * MB,
        (Entity("a", "y"), PRODUCE): 3 * MB,
        **{(Entity("a", name), PRODUCE): 6 * MB for name in "vw"},
    }
    assert flagged(outcome) == {CUT: 1}
    assert "; lowered to the capacity of broker 1 in its hour 2026-11-20 12:00 UTC\n" in text


def test_backfills_at_one_broker_do_not_lower_a_steady_client_at_another(run: Run) -> None:
    """One factor for all cut it, and lowered a client that its quota held back below this quota."""
    numbers = range(200)
    rows = [hour("a", "steady", produce=10 * MB, number=number) for number in numbers]
    rows += [hour("a", "local", produce=10 * MB, broker=3, number=number) for number in numbers]
    rows += [hour("a", "held", produce=4 * MB, broker=3, throttled_s=50, number=number) for number in numbers]
    rows += [hour("a", "moved", produce=MB, broker=2, number=number) for number in numbers]
    rows += [hour("a", name, produce=150 * MB, broker=3, number=100) for name in ("moved", "once")]
    current = parse("[[quota]]\nuser = 'a'\nclient_id = 'held'\nproducer_byte_rate = 5_000_000\n")
    outcome, text = run(rows, percentile=100, capacity={PRODUCE: 100 * MB}, current=current)
    limits = {entity.client_id: limit / MB for (entity, _key), limit in own(parse(text)).items()}
    assert {name: limits[name] for name in ("steady", "local", "held")} == {
        "steady": 15,
        "local": 15,
        "held": 10,
    }
    # beside 10 of `local` and 10 of `held`, which may need all of its limit
    assert sum(limits[name] for name in ("moved", "once")) == pytest.approx(80)
    assert any("lowered to fit the capacity in full hours" in note for note in outcome.notes)


def test_recommend_refuses_floors_beyond_the_capacity(run: Run) -> None:
    told = (
        r"even with the floor 1e\+06 for every entity, .* 2000000 \(broker 1, 2026-11-20 12:00 UTC: 3000000\)"
    )
    with pytest.raises(PipelineError, match=told):
        run([hour("a", name, produce=2 * MB) for name in "xyz"], capacity={PRODUCE: 2 * MB})


def test_recommend_flags_idle_held_back_and_new_entities(
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
        hour("a", "hardly held", produce=10 * MB, throttled_s=1.0),  # a hundredth of its active time
        hour("a", "at its quota", produce=25 * MB),  # its p95 is 20 MB/s
        hour("a", "new", number=48, produce=2 * MB),
        hour("a", "near", number=48, produce=4 * MB),
        hour("a", "old", number=47 - 23, produce=20 * MB),
    ]
    run(rows, current=current, current_name="quotas.toml")
    table = read(spark, Lake(str(tmp_path / "lake")).recommendation, tables.RECOMMENDATION)
    found = {
        row["client_id"]: {*row["flags"]} - {FEW}
        for row in table.where("quota = 'producer_byte_rate'").select("client_id", "flags").collect()
    }
    assert found == {
        "idle": {NEVER_NEAR},
        "near": set(),
        "held": {HELD_BACK},
        "seldom held": {HELD_BACK},
        "hardly held": set(),
        "at its quota": {HELD_BACK},
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
        "1 value of quotas.toml is dropped: defaults, or of another level than user-client-id; "
        "the new entries replace them"
    )
    (groups,) = (each.rows for each in outcome.listings if "groups" in each.title)
    rates = ((PRODUCE.value, 7.5 * MB), (FETCH.value, 6 * MB))  # 2 + 3 in the first hour, and 4
    assert groups == tuple(("etl", "client-id etl-*", 3, *each) for each in rates)


def test_the_capacity_of_recommend_includes_kept_entries(run: Run) -> None:
    rows = [hour("bob", "daily", produce=10 * MB)]
    options: Row = {"current": parse(CURRENT), "percentile": 100, "headroom": 1.0}
    _outcome, text = run(rows, **options, capacity={PRODUCE: 56 * MB})
    # 50 are kept for a client without usage
    assert parse(text).values[Entity("bob", "daily"), PRODUCE] == 6 * MB


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
    shown = ["alice", "a\\n]]#", "producer_byte_rate", "1,800,000.0", "-", *["2,700,000.0"] * 3]
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


def test_recommend_without_usage_recommends_nothing(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    run([hour("a", "b", produce=2 * MB)])
    outcome, text = run([hour("a", "b")], days=(date(2020, 1, 1), date(2020, 1, 2)))
    assert text == ""
    assert outcome.notes[0].startswith(
        "no usage of cluster default from 2020-01-01 to 2020-01-02: quotas.toml is not"
    )
    lake = Lake(str(tmp_path / "lake"))
    assert read(spark, lake.recommendation, tables.RECOMMENDATION).count() == 0
    missing = Lake(str(tmp_path / "missing"))
    assert recommend(spark, missing, RecommendationPlan(now=NOW), _never).read == {"hours": 0}


def _never(lines: Iterable[str]) -> None:
    raise AssertionError(f"written: {list(lines)}")


def test_growth_and_held_back_demand_count_against_the_capacity(run: Run) -> None:
    rows = [hour("a", "held", produce=20 * MB, throttled_s=50.0), hour("a", "free", produce=20 * MB)]
    _outcome, text = run(rows, percentile=100, headroom=1.0, growth=0.5, capacity={PRODUCE: 71 * MB})
    assert own(parse(text)) == {
        (Entity("a", "held"), PRODUCE): 40 * MB,
        (Entity("a", "free"), PRODUCE): 30 * MB,
    }
    _outcome, text = run(rows, percentile=100, headroom=1.0, growth=0.5, capacity={PRODUCE: 69 * MB})
    assert own(parse(text))[Entity("a", "held"), PRODUCE] == 39 * MB


def test_user_whose_clients_have_no_client_id_gets_an_entry_and_is_named_first(run: Run) -> None:
    rows = [hour("bob", "", produce=40 * MB), hour("bob", "app", produce=2 * MB)]
    rows += [hour("alice", "app", produce=4 * MB), hour("carol", "", produce=1000.0)]
    outcome, text = run(rows, percentile=100)
    table = parse(text)
    assert own(table) == {
        (Entity("alice", "app"), PRODUCE): 6 * MB,
        (Entity("bob"), PRODUCE): 60 * MB,
        (Entity("bob"), FETCH): MB,
        (Entity("bob", DEFAULT), PRODUCE): MB,  # else a new client-id would share the 60 MB/s
        (Entity("bob", DEFAULT), FETCH): MB,
        (Entity("bob", "app"), PRODUCE): 3 * MB,
    }
    assert table.limits(PRODUCE).resolve("bob", "").value == 60 * MB  # type: ignore[union-attr]  # it has one
    assert outcome.notes[0] == (
        "producer_byte_rate: 40.00 MB/s, the most of all, were used by clients of user bob without a "
        "client-id: no entry for client-ids limits them, so an entry for the user is proposed"
    )
    assert "1 entity without a name: it cannot have an entry" in outcome.notes


def test_busiest_clients_without_client_id_and_login_are_named_first(run: Run) -> None:
    rows = [hour(ANONYMOUS, None, produce=42 * MB), hour(None, "", produce=40 * MB)]
    rows += [hour(None, "app", produce=2 * MB)]
    outcome, text = run(rows, percentile=100)
    assert own(parse(text)).keys() >= {(Entity(client_id="app"), PRODUCE)}
    assert outcome.notes[0] == (
        "producer_byte_rate: clients without a name used 40.00 MB/s, the most of all: no entry limits "
        "clients without a client-id; set empty_client_id = default, or choose --level user-client-id, which "
        "proposes an entry for the user"
    )


def test_recommendations_of_clusters_and_their_data_are_kept_apart(
    run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    rows = [hour("a", "b", produce=2 * MB), hour("a", "b", produce=4 * MB, cluster="east")]
    lake = Lake(str(tmp_path / "lake"))
    run(rows, percentile=100)
    _outcome, text = run(rows, percentile=100, cluster="east")  # the roll-up's second version
    assert "# Data: cluster east, version 1 of the table rollup.\n" in text
    found = read(spark, lake.recommendation, tables.RECOMMENDATION).where("quota = 'producer_byte_rate'")
    columns = ("cluster", "proposed", "upper", "tier", "rollup_version")
    assert sorted(map(tuple, found.select(*columns).collect())) == [
        ("default", 3 * MB, 3 * MB, 5 * MB, 0),
        ("east", 6 * MB, 6 * MB, 10 * MB, 1),
    ]
    _outcome, text = run([], cluster="east")
    assert [row["cluster"] for row in read(spark, lake.recommendation, tables.RECOMMENDATION).collect()] == [
        "default",
        "default",
    ]


def test_recommendation_tells_tiers_and_the_entities_that_move_to_them(run: Run, spark: SparkSession) -> None:
    """The work is bounded, too: Spark's jobs do not grow with the entities."""
    current = parse(
        "".join(
            f'[[quota]]\nuser = "a"\nclient_id = "{name}"\nproducer_byte_rate = {quota}_000_000\n'
            for name, quota in (("x", 2), ("w", 2), ("y", 5), ("z", 50))
        )
    )
    sizes = {"x": 4, "y": 5, "z": 6, "new": 30, "w": 4}
    rows = [hour("a", name, produce=size * MB) for name, size in sizes.items()]
    spark.sparkContext.setJobGroup("tiers", "")
    outcome, _text = run(rows, quotas=(PRODUCE,), headroom=1.0, percentile=100, current=current)
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("tiers")) < 40
    (listing,) = (each for each in outcome.listings if "tiers" in each.title)
    # z needs 6 MB/s: 10 is the next of the series; y keeps its quota
    assert listing.rows == (
        (PRODUCE.value, 5 * MB, 3, 2, 0, 0, "a w, a x"),  # equally far: ordered by name
        (PRODUCE.value, 10 * MB, 1, 0, 1, 0, "a z"),
        (PRODUCE.value, 50 * MB, 1, 0, 0, 1, ""),
    )
