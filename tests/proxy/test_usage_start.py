"""What is configured is checked in one line, and what is put together records where it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec import structs

from tests.proxy.usage_rigs import usage_record
from weir.proxy.config.config import ConfigError, load
from weir.proxy.control.usage.start import new_instance, recording
from weir.proxy.control.usage.tally import Kind

UPSTREAM = {"upstream": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"usage_interval_ms": 99}, "usage_interval_ms is 99, must be 100 to 3600000"),
        ({"usage_interval_ms": 3_600_001}, "usage_interval_ms is 3600001"),
        ({"usage_trace_share": 1.01}, "usage_trace_share is 1.01, must be 0 to 1"),
        ({"usage_trace_share": -0.1}, "usage_trace_share is -0.1"),
        ({"usage_trace_share": float("nan")}, "usage_trace_share is nan"),
        ({"usage_keep_bytes": -1}, "usage_keep_bytes is -1, must be at least 0"),
    ],
    ids=str,
)
def test_invalid_usage_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(None, {**UPSTREAM, **settings})
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize("name", ["file", "file/below", "nul\0"])
def test_an_unusable_usage_directory_is_reported_in_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as refused:
        recording(load(None, {**UPSTREAM, "usage": str(tmp_path / name)}))
    assert "cannot write files of usage: " in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["a/b", "..", "", "ä", "x" * 250])
def test_an_invalid_topic_name_is_refused(name: str) -> None:
    for key, value in [("usage", f"topic:{name}"), ("events_topic", name), ("usage_share_topic", name)]:
        if value:
            with pytest.raises(ConfigError, match=f"{key} is '.*', must name a topic"):
                load(None, {**UPSTREAM, key: value})


def test_the_word_topic_without_a_name_is_no_directory_of_usage(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text('usage = "topic"')
    with pytest.raises(ConfigError, match=r"must be topic:NAME or a directory, for example ./topic"):
        load(file, UPSTREAM)
    file.write_text('usage = "./topic"')
    assert load(file, UPSTREAM).settings.usage == f"{tmp_path}/topic"


def test_a_usage_topic_without_confluent_kafka_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "weir.proxy.control.usage.topic", None)
    monkeypatch.delattr(sys.modules["weir.proxy.control.usage"], "topic", raising=False)
    with pytest.raises(ConfigError, match="pip install confluent-kafka"):
        recording(load(None, {**UPSTREAM, "usage": "topic:usage"}))


def test_a_usage_topic_of_an_unreachable_cluster_is_a_failure_that_is_retried() -> None:
    found = recording(
        structs.replace(load(None, {**UPSTREAM, "usage": "topic:usage"}), connect_timeout_s=1.0)
    )
    assert found is not None
    found.writer.put(Kind.USAGE, [usage_record()])
    found.writer.turn()
    assert found.writer.tally.failure.startswith("no broker answers: ")
    assert found.writer.tally.queued == 1


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("weir-1.example.com", "weir-1"),
        ("../../etc", "host"),
        ("h\u00f6st_1", "h-st-1"),
        ("x" * 300, "x" * 40),
    ],
)
def test_an_instance_name_is_valid_in_a_file_name(host: str, name: str) -> None:
    assert new_instance(host, 1_763_775_570.9, "3f9a2c") == f"{name}-20251122T013930Z-3f9a2c"
