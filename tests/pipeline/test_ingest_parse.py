"""Valid records, and every reason for which a line is malformed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from tests.pipeline.usage_files import traced
from weir.pipeline.ingest.parse import (
    COUNT_MAX,
    LINE_MAX,
    RULES,
    SOURCE,
    TEXT_MAX,
    USAGE,
    Rules,
    parsed,
    rows_of_files,
    rows_of_lines,
)
from weir.usage.records import ByQuota, TraceRecord, UsageRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]

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


def judge(lines: list[str | bytes | None], kind: str = "usage", rules: Rules = RULES) -> list[Row]:
    contents = [line.encode() if isinstance(line, str) else line for line in lines]
    names = [str(number) for number in range(len(lines))]
    columns = [pa.array(names), pa.array(contents, pa.binary()), pa.array([TAKEN_MS] * len(lines))]
    found: list[Row] = []
    for name, *rest in zip(*columns, strict=True):
        batch = pa.record_batch([pa.array([value]) for value in (name, *rest)], names=SOURCE.names)
        found += [row for rows in rows_of_lines(kind, rules, [batch]) for row in rows.to_pylist()]
    return found


def in_a_file(lines: list[bytes], directory: Path) -> list[Row]:
    path = directory / "usage-1.jsonl"
    path.write_bytes(b"\n".join(lines))
    columns = [pa.array([f"file:{path}"]), pa.array([None], pa.binary()), pa.array([TAKEN_MS])]
    batch = pa.record_batch(columns, names=SOURCE.names)
    return [row for rows in rows_of_files("usage", RULES, [batch]) for row in rows.to_pylist()]


def assert_is(row: Row, record: UsageRecord | TraceRecord) -> None:
    assert row["reason"] is None
    for name, value in msgspec.structs.asdict(record).items():
        assert row[name] == (msgspec.structs.asdict(value) if isinstance(value, ByQuota) else value), name


# Lines, and regular expressions that find the reason.
BAD: list[tuple[str | bytes | None, str]] = [
    (None, "empty"),
    ("", "empty"),
    ("  ", "empty"),
    (GOOD.encode().replace(b'"api":""', b'"api":"\xff"'), "not UTF-8"),
    ("{", "JSON|truncated|Expected `object`"),
    (GOOD[:-1], "JSON|truncated|Expected `object`"),
    (GOOD[:-1] + ",}", "JSON|truncated|Expected `object`"),
    (GOOD + GOOD, "JSON|truncated|Expected `object`"),
    (GOOD + " " + GOOD, "JSON|truncated|Expected `object`"),
    (GOOD + "}", "JSON|truncated|Expected `object`"),
    (GOOD + "} and more", "JSON|truncated|Expected `object`"),
    (GOOD + "]", "JSON|truncated|Expected `object`"),
    ("[" + GOOD + "]", "JSON|truncated|Expected `object`"),
    ("null", "JSON|truncated|Expected `object`"),
    ("5", "JSON|truncated|Expected `object`"),
    ('"text"', "JSON|truncated|Expected `object`"),
    ("\0" * 100, "JSON|truncated|Expected `object`"),
    (GOOD.replace('"', "'"), "JSON|truncated|Expected `object`"),
    ("# " + GOOD, "JSON|truncated|Expected `object`"),
    (having(user="a\0b").replace("\\u0000", "\0"), "JSON|truncated|Expected `object`"),
    ("[" * 5000 + "]" * 5000, "JSON|truncated|Expected `object`"),
    ("{}", r"version"),
    (lacking("version"), r"version"),
    (having(version="1"), r"version"),
    (having(version=1.5), r"version"),
    (having(version=None), r"version"),
    (having(version=2), "version 2 is not known"),
    ('{"version":7,"unlike":"anything"}', "version 7 is not known"),
    (having(version=0), "version 0 is not known"),
    (lacking("user"), r"user"),
    (having(user=None), r"user"),
    (having(user=5), r"user"),
    (having(user=True), r"user"),
    (having(user={"name": "x"}), r"user"),
    (having(user=["x"]), r"user"),
    (having(client_id=1.5), r"client_id"),
    (GOOD.replace('"user":""', '"us\\u0065r":5'), r"user"),
    (lacking("time_ms"), r"time_ms"),
    (having(time_ms=10**30), r"time_ms"),
    (having(time_ms=1e12), r"time_ms"),
    (having(requests=None), "Expected `int`, got `null` - at `.*requests"),
    (having(throttle_ms=None), "Expected `object`, got `null` - at `.*throttle_ms"),
    (having(requests="5"), "Expected `int`, got `str` - at `.*requests"),
    (having(requests=5.0), "Expected `int`, got `float` - at `.*requests"),
    (having(requests=2**63), f"Expected `int` <= {COUNT_MAX} - at `.*requests"),
    (having(requests=True), "Expected `int`, got `bool` - at `.*requests"),
    (having(request_time_us="NaN"), "Expected `float`, got `str` - at `.*request_time_us"),
    (having(request_time_us="1.5"), "Expected `float`, got `str` - at `.*request_time_us"),
    (having(throttle_ms=5), "Expected `object`, got `int` - at `.*throttle_ms"),
    (
        having(throttle_ms={"producer_byte_rate": "x"}),
        "Expected `int`, got `str` - at `.*throttle_ms.producer_byte_rate",
    ),
    (GOOD[:-1] + ',"request_time_us":NaN}', "JSON|truncated|Expected `object`"),
    (GOOD[:-1] + ',"request_time_us":1e999}', "Number out of range - at `.*request_time_us"),
    (having(request_time_us=-0.5), "Expected `float` >= 0.0 - at `.*request_time_us"),
    (having(requests=-1), "Expected `int` >= 0 - at `.*requests"),
    (having(bytes_in=COUNT_MAX + 1), f"Expected `int` <= {COUNT_MAX} - at `.*bytes_in"),
    (having(broker=-2), "Expected `int` >= -1 - at `.*broker"),
    (having(broker=2**31), f"Expected `int` <= {2**31 - 1} - at `.*broker"),
    (
        having(violations={"request_percentage": -1}),
        "Expected `int` >= 0 - at `.*violations.request_percentage",
    ),
    (having(interval_ms=0), "Expected `int` >= 1 - at `.*interval_ms"),
    (having(interval_ms=DAY_MS + 1), f"Expected `int` <= {DAY_MS} - at `.*interval_ms"),
    (having(user="x" * (TEXT_MAX + 1)), f"Expected `str` of length <= {TEXT_MAX} - at `.*user"),
    (having(api="x" * 2_000_000), f"Expected `str` of length <= {TEXT_MAX} - at `.*api"),
    (
        having(time_ms=0),
        (
            r"time_ms 0 \(1970-01-01 00:00:00.000\+00:00\) is not within "
            r"1420070400000 \(2015-01-01 00:00:00.000\+00:00\) and"
        ),
    ),
    (having(time_ms=-(2**63)), f"time_ms {-(2**63)} is not within"),
    (
        having(time_ms=TAKEN_MS + DAY_MS + 1),
        (
            rf"time_ms {TAKEN_MS + DAY_MS + 1} \(2023-11-15 22:13:20.001\+00:00\) is not within .* and "
            rf"{TAKEN_MS + DAY_MS} \(2023-11-15 22:13:20.000\+00:00\)"
        ),
    ),
    (having(time_ms=2**63 - 1), f"time_ms {2**63 - 1} is not within"),
]


def test_rejected_usage_lines_have_a_reason_and_their_source() -> None:
    rows = judge([line for line, _why in BAD])
    for row, (line, why) in zip(rows, BAD, strict=True):
        assert re.search(why, row["reason"]), (line and line[:200], row["reason"])
        assert row["time_ms"] is None
    assert [row["source"] for row in rows] == [str(number) for number in range(len(BAD))]
    assert {row["taken_ms"] for row in rows} == {TAKEN_MS}


def test_a_usage_file_gives_the_same_rows_as_its_lines_one_by_one(tmp_path: Path) -> None:
    texts = [line.encode() if isinstance(line, str) else line for line, _why in BAD if line and line.strip()]
    good = [msgspec.json.encode(FULL), GOOD.encode()]
    rows = in_a_file([good[0], *texts, good[1]], tmp_path)
    assert sorted(row["reason"] for row in rows if row["reason"]) == sorted(
        row["reason"] for row in judge(list[str | bytes | None](texts))
    )
    assert [row["user"] for row in rows if not row["reason"]] == [FULL.user, ""]


def test_blank_lines_of_a_usage_file_are_no_records(tmp_path: Path) -> None:
    rows = in_a_file([b"", GOOD.encode(), b"  ", GOOD.encode(), b""], tmp_path)
    assert [row["reason"] for row in rows] == [None, None]


def test_rejected_usage_lines_are_kept_as_bounded_text() -> None:
    rows = judge([None, b"\xff and so on", "x" * (LINE_MAX + 1)])
    assert [row["line"] for row in rows] == ["", "\\xff and so on", "x" * LINE_MAX]


def test_usage_records_older_than_the_retention_are_rejected() -> None:
    lines: list[str | bytes | None] = [
        having(time_ms=TAKEN_MS - DAY_MS),
        having(time_ms=TAKEN_MS - DAY_MS - 1),
    ]
    reasons = [row["reason"] for row in judge(lines, rules=Rules(keep_ms=DAY_MS))]
    assert reasons == [
        None,
        f"time_ms {TAKEN_MS - DAY_MS - 1} (2023-11-13 22:13:19.999+00:00) is older than the retention",
    ]


def test_a_rejected_usage_line_is_checked_again_at_the_present_time() -> None:
    later: list[str | bytes | None] = [having(time_ms=TAKEN_MS + DAY_MS + 1)]
    assert judge(later)[0]["reason"]
    assert judge(later, rules=Rules(now_ms=TAKEN_MS + 1))[0]["reason"] is None


@pytest.mark.parametrize(
    ("kind", "record"), [("usage", FULL), ("usage", BARE), ("trace", TRACED)], ids=["full", "bare", "trace"]
)
def test_a_parsed_record_equals_the_written_one(kind: str, record: UsageRecord | TraceRecord) -> None:
    (row,) = judge([msgspec.json.encode(record)], kind)
    assert_is(row, record)
    assert row["line"] is None


def test_unknown_fields_do_not_make_a_usage_record_invalid() -> None:
    lines: list[str | bytes | None] = [
        having(field_of_tomorrow=[1, {"user": 5}]),
        having(throttle_ms={"quota_of_tomorrow": "x"}),
        having(request_time_us=3),
        having(time_ms=TAKEN_MS + DAY_MS),
        having(time_ms=1_420_070_400_000),
        having(user="2023-11-14"),
        " " + GOOD + "\r",
        GOOD.replace('"user":""', '"user":"first","user":""'),
    ]
    rows = judge(lines)
    assert [row["reason"] for row in rows] == [None] * len(lines)
    assert [row["user"] for row in rows] == [""] * 5 + ["2023-11-14", "", ""]
    assert {(row["requests"], row["throttle_ms"]["producer_byte_rate"]) for row in rows} == {(0, 0)}


def test_names_are_bounded_by_characters_not_bytes(tmp_path: Path) -> None:
    """Weir writes names of up to 256 characters, in UTF-8 up to 1,024 bytes."""
    names = ["\N{GRINNING FACE}" * length for length in (256, TEXT_MAX)]
    lines: list[str | bytes | None] = [having(user=name) for name in names]
    assert [row["user"] for row in judge(lines)] == names
    assert [row["user"] for row in in_a_file([str(line).encode() for line in lines], tmp_path)] == names


@pytest.mark.parametrize("end", ["", ".gz", ".zst"])
def test_an_empty_file_of_another_machine_has_no_lines(end: str) -> None:
    """Spark passes its content, which is empty."""
    source = pa.array([f"s3a://bucket/usage-1.jsonl{end}"])
    batch = pa.record_batch([source, pa.array([b""]), pa.array([TAKEN_MS])], names=SOURCE.names)
    assert list(rows_of_files("usage", RULES, [batch])) == []


@pytest.mark.spark
def test_spark_parses_lines_into_the_columns_of_a_record(spark: SparkSession) -> None:
    lines = [("0", bytearray(msgspec.json.encode(FULL)), TAKEN_MS), ("1", bytearray(b"bad"), TAKEN_MS)]
    good, bad = (
        parsed(spark.createDataFrame(lines, SOURCE), USAGE, files=False).orderBy("time_ms").collect()[::-1]
    )
    assert (
        good.asDict(recursive=True).items()
        >= {"user": FULL.user, "bytes_in": COUNT_MAX, "line": None}.items()
    )
    assert (bad.line, bad.source, bad.time_ms) == ("bad", "1", None)
