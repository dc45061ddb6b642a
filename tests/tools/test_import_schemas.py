"""The importer merges the published jars into the committed schemas."""

from __future__ import annotations

import fcntl
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tools import import_schemas
from tools.compare_schemas import Kind, compare
from tools.import_schemas import generate, generated, write
from tools.kafka_source import read_jar
from weir.protocol import schema

PAGE: Final = Path(import_schemas.__file__).parents[1] / "docs" / "how-to" / "new-kafka-release.md"


def test_the_page_lists_each_kind_of_change() -> None:
    kinds = {row.split("`")[1] for row in PAGE.read_text("utf-8").splitlines() if row.startswith("| `")}
    assert kinds == set(Kind)


@pytest.fixture(scope="module")
def jars() -> Iterator[list[Path]]:
    """The two published jars, downloaded once into the repository's cache."""
    cache = Path(os.environ.get("WEIR_CACHE") or Path(__file__).parents[2] / ".cache").absolute() / "schemas"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield [_fetched(cache, version) for version in ("3.9.1", "4.4.0")]


def _fetched(cache: Path, version: str) -> Path:
    name = f"kafka-clients-{version}.jar"
    if not (cache / name).exists():
        url = f"https://repo1.maven.org/maven2/org/apache/kafka/kafka-clients/{version}/{name}"
        with urllib.request.urlopen(url, timeout=120) as answer:  # https, as one can see
            (cache / "part").write_bytes(answer.read())
        (cache / "part").rename(cache / name)
    return cache / name


@pytest.mark.oracle
def test_the_committed_schemas_equal_those_of_the_published_jars(jars: list[Path], tmp_path: Path) -> None:
    assert compare(jars[1]) == []
    files = generate(*map(read_jar, jars))
    room = Path(schema.__file__).parent
    assert {name: (room / name).read_text("utf-8") for name in generated(room)} == files
    (tmp_path / "schemas").mkdir()
    write(tmp_path, files)
    assert {name: (tmp_path / name).read_text("utf-8") for name in generated(tmp_path)} == files
