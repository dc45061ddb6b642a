"""Copies of formatted directories are what Kafka's StorageTool makes of a cluster's own settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka import Cluster, locked_versions, storage
from tests.kafka.jars import version_tuple

if TYPE_CHECKING:
    from tests.kafka.fixtures import StartCluster

KRAFT = [version for version in locked_versions() if version_tuple(version) >= (3, 0)]


def contents(directory: Path) -> dict[str, object]:
    """Each file, but for the times of writing and the random id."""
    found: dict[str, object] = {path.name: path.read_bytes() for path in directory.iterdir()}
    found["bootstrap.checkpoint"] = timeless((directory / "bootstrap.checkpoint").read_bytes())
    lines = (directory / "meta.properties").read_text().splitlines()
    settings = {line.partition("=")[0]: line for line in lines if not line.startswith("#")}
    assert re.fullmatch(r"directory\.id=[\w][\w-]{21}", settings.pop("directory.id"))
    return found | {"meta.properties": settings}


def timeless(batches: bytes) -> list[bytes]:
    """Record batches (magic 2) without their checksums and timestamps."""
    found = []
    while batches:
        end = 12 + int.from_bytes(batches[8:12], "big")
        batch, batches = batches[:end], batches[end:]
        assert batch[16] == 2
        found.append(batch[:17] + batch[21:27] + batch[43:])
    return found


def formatted_by_kafka(cluster: Cluster, node_id: int, directory: Path) -> dict[str, object]:
    """What StorageTool makes of the properties that the broker runs with."""
    text = (cluster.directory / "data" / f"server-{node_id}.properties").read_text()
    properties = directory / "server.properties"
    properties.write_text(re.sub("(?m)^log.dirs=.*$", f"log.dirs={directory / 'log'}", text))
    done = cluster.run("kafka.tools.StorageTool", "format", "-t", storage.CLUSTER_ID, "-c", str(properties))
    assert done.returncode == 0, done.stdout + done.stderr
    return contents(directory / "log")


def copied(cluster: Cluster, node_id: int, directory: Path, *, voter: bool) -> dict[str, object]:
    """What the broker started with."""

    def fail(_properties: Path) -> None:
        pytest.fail("the cluster has started: what it needed is in the cache")

    storage.format_directory(directory / "copy", cluster.version, node_id, voter=voter, tool=fail)
    return contents(directory / "copy")


@pytest.mark.broker
@pytest.mark.parametrize("version", KRAFT)
def test_a_copied_kraft_directory_equals_one_that_storage_tool_formats(
    kafka_cluster: StartCluster, tmp_path: Path, version: str
) -> None:
    """Of two brokers only the first is a controller; SASL and ids are none of what the tool looks at."""
    cluster = kafka_cluster(version, brokers=2, first_id=1001)
    for node_id, voter in ((1001, True), (1002, False)):
        directory = tmp_path / str(node_id)
        directory.mkdir()
        expected = formatted_by_kafka(cluster, node_id, directory)
        assert copied(cluster, node_id, directory, voter=voter) == expected


def test_each_copy_of_a_kraft_directory_has_an_id_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path / "cache"))
    calls: list[str] = []

    def tool(properties: Path) -> None:
        calls.append(properties.read_text())
        directory = Path(calls[-1].partition("log.dirs=")[2].strip())
        directory.mkdir()
        (directory / "meta.properties").write_text("node.id=0\ndirectory.id=template\nversion=1\n")

    for node_id in (7, 8):
        storage.format_directory(tmp_path / str(node_id), "3.9.1", node_id, voter=True, tool=tool)
    first, second = ((tmp_path / name / "meta.properties").read_text().splitlines() for name in ("7", "8"))
    assert len(calls) == 1, "the second copy comes from the cache"
    assert (first[0], second[0]) == ("node.id=7", "node.id=8")
    assert len({first[1], second[1], "directory.id=template"}) == 3
    storage.format_directory(tmp_path / "9", "3.9.1", 9, voter=False, tool=tool)
    assert len(calls) == 2, "a broker that is no controller has a template of its own"
