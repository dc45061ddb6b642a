"""The Spark session's start, without Spark."""

from __future__ import annotations

import logging

import pytest

from weir.pipeline import spark
from weir.pipeline.outcome import PipelineError


def start_session(monkeypatch: pytest.MonkeyPatch, job: str) -> str:
    """Return the name with which a session for `job` starts Spark; the start itself fails."""
    names: list[str] = []

    def start(name: str, *_: object) -> None:
        names.append(name)
        raise PipelineError("no Spark in this test")

    monkeypatch.setattr(spark, "_start", start)
    with pytest.raises(PipelineError), spark.session(job):
        pass
    return names[0]


def test_spark_application_has_the_name_of_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start_session(monkeypatch, "rollup") == "rollup"


def test_second_spark_session_adds_no_second_log_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        start_session(monkeypatch, "rollup")
    for name in ("", "py4j.clientserver"):
        assert logging.getLogger(name).filters.count(spark._is_not_raised_too) == 1
