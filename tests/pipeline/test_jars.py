"""Spark's Kafka connector: what is locked, where it is kept, and bringing one's own."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from pipeline import jars
from pipeline.locked_jars import JarError
from pipeline.outcome import PipelineError


def test_the_connector_is_locked_in_the_version_of_the_pyspark_here() -> None:
    locked = [jar.coordinates for jar in jars.locked()]
    assert jars.CONNECTOR in locked
    assert jars.CONNECTOR.endswith(f":{pyspark.__version__}")


def test_nothing_is_locked_that_pyspark_brings() -> None:
    brought = {
        path.name.rpartition("-")[0] for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    }
    assert brought
    assert not [jar for jar in jars.locked() if jar.coordinates.split(":")[1] in brought]


def test_jars_are_kept_where_the_operator_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEIR_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert jars.cache_directory() == Path("/cache/kafka-weir/jars")
    monkeypatch.setenv("WEIR_CACHE", "/elsewhere")
    assert jars.cache_directory() == Path("/elsewhere")


def test_what_is_brought_is_taken_and_nothing_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_MAVEN_REPOSITORY", "http://127.0.0.1:1/")
    mine = tmp_path / "mine.jar"
    mine.touch()
    assert jars.connector([mine], print) == [mine]
    assert jars.settings([mine]) == {"spark.jars": str(mine)}


def test_a_jar_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"mine\.jar: no such jar"):
        jars.connector([tmp_path / "mine.jar"], print)


def test_a_path_that_spark_would_take_for_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="comma"):
        jars.settings([tmp_path / "a,b.jar"])


def test_without_a_repository_the_error_is_one_line_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path))
    monkeypatch.setenv("WEIR_MAVEN_REPOSITORY", "http://127.0.0.1:1/")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(JarError, match=r"kafka-clients-.*WEIR_MAVEN_REPOSITORY to a mirror") as error:
        jars.connector([], print)
    assert "\n" not in str(error.value)
