"""The jars of Delta Lake and Spark's Kafka connector: locked jars, the cache, and jars of the user."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from weir.pipeline import jars
from weir.pipeline.jars import JarError
from weir.pipeline.outcome import PipelineError


def test_the_locked_kafka_connector_has_pysparks_version() -> None:
    locked = [jar.coordinates for jar in jars.locked()]
    assert {jars.CONNECTOR, jars.DELTA} <= set(locked)
    assert jars.CONNECTOR.endswith(f":{pyspark.__version__}")


def test_no_locked_jar_is_bundled_with_pyspark() -> None:
    brought = {
        path.name.rpartition("-")[0] for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    }
    assert brought
    doubled = {jar.coordinates.rpartition(":")[0] for jar in jars.locked(s3=True)} & {
        f"{jar.coordinates.split(':')[0]}:{name}" for jar in jars.locked(s3=True) for name in brought
    }
    assert doubled == {"software.amazon.awssdk:annotations"}, "PySpark's are those of JetBrains"


def test_the_locked_jars_of_s3_have_the_version_of_pysparks_hadoop_and_one_version_of_the_sdk() -> None:
    (hadoop,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    only_s3 = [jar.coordinates.split(":") for jar in jars.locked(s3=True) if jar not in jars.locked()]
    assert ["org.apache.hadoop", "hadoop-aws", hadoop.stem.rpartition("-")[2]] in only_s3
    assert len({version for group, _artifact, version in only_s3 if group == "software.amazon.awssdk"}) == 1


def test_downloaded_jars_are_kept_in_the_configured_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEIR_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert jars.cache_directory() == Path("/cache/kafka-weir/jars")
    monkeypatch.setenv("WEIR_CACHE", "/elsewhere")
    assert jars.cache_directory() == Path("/elsewhere")


def test_given_spark_jars_are_used_without_a_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_MAVEN_REPOSITORY", "http://127.0.0.1:1/")
    mine = tmp_path / "mine.jar"
    mine.touch()
    assert jars.provided([mine]) == [mine]
    assert jars.loading([mine]) == {"spark.jars": str(mine)}


def test_a_missing_connector_jar_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"mine\.jar: no such jar"):
        jars.provided([tmp_path / "mine.jar"])


def test_a_jar_path_with_a_comma_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="comma"):
        jars.loading([tmp_path / "a,b.jar"])


def test_an_unreachable_jar_repository_is_reported_in_one_line_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path))
    monkeypatch.setenv("WEIR_MAVEN_REPOSITORY", "http://127.0.0.1:1/")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(JarError, match=r"WEIR_MAVEN_REPOSITORY to a mirror") as error:
        jars.provided([])
    assert "\n" not in str(error.value)
