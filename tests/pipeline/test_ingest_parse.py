"""Valid records, and every reason for which a line is malformed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from pyspark.sql import functions as fn

from tests.pipeline.usage_files import traced
from weir.pipeline.ingest.parse import COUNT_MAX, KINDS, LINE_MAX, TEXT_MAX, USAGE, parsed
from weir.usage.records import ByQuota, TraceRecord, UsageRecord

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

TAKEN_MS = 1_700_000_000_000
DAY_MS = 86_400_000
FULL = UsageRecord(
    version=1,
    time_ms=1_699_999_999_999,
    interval_ms=1000,
    instance="weir-1",
    broker=3,
    user="Jörg \u2603 \0",
    client_id='"quoted": 5',
    api="an api of tomorrow",
    requests=2,
    bytes_in=COUNT_MAX,
    bytes_out=4,
    sessions=5,
    charged_bytes=6,
    request_time_us=7.5,
    mutations=8,
    throttle_ms=ByQuota(producer_byte_rate=1, topic_byte_rate=9),
    violations=ByQuota(controller_mutation_rate=2),
    errors=10,
)
BARE = UsageRecord(
    version=1, time_ms=TAKEN_MS, interval_ms=1, instance="", broker=-1, user="", client_id="", api=""
)
TRACED = traced(TAKEN_MS)
GOOD = msgspec.json.encode(BARE).decode()


def having(**fields: object) -> str:
    return json.dumps(json.loads(GOOD) | fields)


def lacking(name: str) -> str:
    return json.dumps({key: value for key, value in json.loads(GOOD).items() if key != name})


def judge(spark: SparkSession, lines: list[str | bytes | None], kind: str = "usage") -> list[Row]:
    """Return the parsed rows in the order of the lines."""
    rows = [
        (number, None if line is None else bytearray(line.encode() if isinstance(line, str) else line))
        for number, line in enumerate(lines)
    ]
    frame = spark.createDataFrame(rows, "source string, value binary").select(
        fn.col("value").cast("string"),
        "source",
        fn.lit("").alias("channel"),
        fn.lit(TAKEN_MS).alias("taken_ms"),
    )
    return parsed(frame, KINDS[kind]).collect()


def assert_is(row: Row, record: UsageRecord | TraceRecord) -> None:
    """Check that a good row has exactly the values of the record."""
    assert row.reason is None
    found = row.asDict(recursive=True)
    for name, value in msgspec.structs.asdict(record).items():
        assert found[name] == (msgspec.structs.asdict(value) if isinstance(value, ByQuota) else value), name


BAD: list[tuple[str | bytes | None, str]] = [
    (None, "empty"),
    ("", "empty"),
    ("  ", "empty"),
    (GOOD.encode().replace(b'"api":""', b'"api":"\xff"'), "not UTF-8"),
    ("{", "not one JSON object"),
    (GOOD[:-1], "not one JSON object"),
    (GOOD[:-1] + ",}", "not one JSON object"),
    (GOOD + GOOD, "not one JSON object"),
    (GOOD + " " + GOOD, "not one JSON object"),
    (GOOD + "}", "not one JSON object"),
    (GOOD + "} and more", "not one JSON object"),
    (GOOD + "]", "not one JSON object"),
    ("[" + GOOD + "]", "not one JSON object"),
    ("null", "not one JSON object"),
    ("5", "not one JSON object"),
    ('"text"', "not one JSON object"),
    ("\0" * 100, "not one JSON object"),
    (GOOD.replace('"', "'"), "not one JSON object"),
    ("# " + GOOD, "not one JSON object"),
    (having(user="a\0b").replace("\\u0000", "\0"), "not one JSON object"),
    ("[" * 5000 + "]" * 5000, "not one JSON object"),
    ("{}", "version is missing, or of the wrong type"),
    (lacking("version"), "version is missing, or of the wrong type"),
    (having(version="1"), "version is missing, or of the wrong type"),
    (having(version=1.5), "version is missing, or of the wrong type"),
    (having(version=None), "version is missing, or of the wrong type"),
    (having(version=2), "version 2 is not known"),
    ('{"version":7,"unlike":"anything"}', "version 7 is not known"),
    (having(version=0), "version 0 is not known"),
    (lacking("user"), "user is missing, or of the wrong type"),
    (having(user=None), "user is missing, or of the wrong type"),
    (having(user=5), "user is missing, or of the wrong type"),
    (having(user=True), "user is missing, or of the wrong type"),
    (having(user={"name": "x"}), "user is missing, or of the wrong type"),
    (having(user=["x"]), "user is missing, or of the wrong type"),
    (having(client_id=1.5), "client_id is missing, or of the wrong type"),
    (GOOD.replace('"user":""', '"us\\u0065r":5'), "user is missing, or of the wrong type"),
    (lacking("time_ms"), "time_ms is missing, or of the wrong type"),
    (having(time_ms=10**30), "time_ms is missing, or of the wrong type"),
    (having(time_ms=1e12), "time_ms is missing, or of the wrong type"),
    (having(requests="5"), "a field is of the wrong type"),
    (having(requests=5.0), "a field is of the wrong type"),
    (having(requests=2**63), "a field is of the wrong type"),
    (having(requests=True), "a field is of the wrong type"),
    (having(request_time_us="NaN"), "a field is of the wrong type"),
    (having(request_time_us="1.5"), "a field is of the wrong type"),
    (having(throttle_ms=5), "a field is of the wrong type"),
    (having(throttle_ms={"producer_byte_rate": "x"}), "a field is of the wrong type"),
    (GOOD[:-1] + ',"request_time_us":NaN}', "not one JSON object"),
    (GOOD[:-1] + ',"request_time_us":1e999}', f"request_time_us Infinity is not within 0 and {COUNT_MAX}"),
    (having(request_time_us=-0.5), f"request_time_us -0.5 is not within 0 and {COUNT_MAX}"),
    (having(requests=-1), f"requests -1 is not within 0 and {COUNT_MAX}"),
    (having(bytes_in=COUNT_MAX + 1), f"bytes_in {COUNT_MAX + 1} is not within 0 and {COUNT_MAX}"),
    (having(broker=-2), f"broker -2 is not within -1 and {COUNT_MAX}"),
    (
        having(violations={"request_percentage": -1}),
        f"violations.request_percentage -1 is not within 0 and {COUNT_MAX}",
    ),
    (having(interval_ms=0), f"interval_ms 0 is not within 1 and {DAY_MS}"),
    (having(interval_ms=DAY_MS + 1), f"interval_ms {DAY_MS + 1} is not within 1 and {DAY_MS}"),
    (having(user="x" * (TEXT_MAX + 1)), f"user has {TEXT_MAX + 1} characters, more than {TEXT_MAX}"),
    (having(api="x" * 2_000_000), f"api has 2000000 characters, more than {TEXT_MAX}"),
    (having(time_ms=0), "time_ms 0 is before 2015"),
    (having(time_ms=-(2**63)), f"time_ms {-(2**63)} is before 2015"),
    (
        having(time_ms=TAKEN_MS + DAY_MS + 1),
        f"time_ms {TAKEN_MS + DAY_MS + 1} is more than a day ahead of when it was taken",
    ),
    (having(time_ms=2**63 - 1), f"time_ms {2**63 - 1} is more than a day ahead of when it was taken"),
]


def test_malformed_usage_lines_are_kept_with_a_reason(spark: SparkSession) -> None:
    rows = judge(spark, [line for line, _why in BAD])
    assert [row.reason for row in rows] == [why for _line, why in BAD]
    assert [row.source for row in rows] == [str(number) for number in range(len(BAD))]


def test_malformed_usage_lines_are_kept_as_bounded_text(spark: SparkSession) -> None:
    rows = judge(spark, [None, b"\xff and so on", "x" * (LINE_MAX + 1)])
    assert [row.line for row in rows] == [None, "\ufffd and so on", "x" * LINE_MAX]


def test_a_parsed_usage_record_equals_the_written_one(spark: SparkSession) -> None:
    (row,) = judge(spark, [msgspec.json.encode(FULL)])
    assert_is(row, FULL)
    assert str(row.day) == "2023-11-14"
    assert row.line is None


@pytest.mark.parametrize(("kind", "record"), [("usage", BARE), ("trace", TRACED)], ids=["usage", "trace"])
def test_omitted_fields_of_a_usage_record_have_their_defaults(
    kind: str, record: UsageRecord | TraceRecord, spark: SparkSession
) -> None:
    (row,) = judge(spark, [msgspec.json.encode(record)], kind)
    assert_is(row, record)


def test_unknown_and_null_fields_do_not_make_a_usage_record_malformed(spark: SparkSession) -> None:
    lines: list[str | bytes | None] = [
        having(field_of_tomorrow=[1, {"user": 5}]),
        having(requests=None),
        having(throttle_ms=None),
        having(throttle_ms={"producer_byte_rate": None, "quota_of_tomorrow": "x"}),
        having(request_time_us=3),
        having(time_ms=TAKEN_MS + DAY_MS),
        having(time_ms=1_420_070_400_000),
        having(user="2023-11-14"),
        " " + GOOD + "\r",
        GOOD.replace('"user":""', '"user":"first","user":""'),
    ]
    rows = judge(spark, lines)
    assert [row.reason for row in rows] == [None] * len(lines)
    assert [row.user for row in rows] == [""] * 7 + ["2023-11-14", "", ""]
    assert {(row.requests, row.throttle_ms.producer_byte_rate) for row in rows} == {(0, 0)}


def test_parsing_no_lines_gives_no_records(spark: SparkSession) -> None:
    empty = spark.createDataFrame([], "value string, source string, channel string, taken_ms bigint")
    assert parsed(empty, USAGE).collect() == []
