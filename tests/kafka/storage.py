"""Directories that KRaft brokers start from: Kafka's StorageTool formats one per version and role, the others
are copies with an id of their own.

The tool reads no more of a broker's settings than `format_properties` has, so nothing else can change a copy.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

from tests.kafka.jars import cache_directory, read_lock
from tests.kafka.settings import HOST, render

CLUSTER_ID = "V2VpclRlc3RDbHVzdGVyMA"  # any 16 bytes in base 64
_META = "meta.properties"


def format_directory(
    target: Path, version: str, node_id: int, *, voter: bool, tool: Callable[[Path], None]
) -> None:
    """Create `target` as a broker's formatted directory. `tool` runs StorageTool with a properties file."""
    shutil.copytree(_template(version, voter=voter, tool=tool), target)
    meta = target / _META
    text = re.sub("(?m)^node.id=.*$", f"node.id={node_id}", meta.read_text())
    meta.write_text(re.sub("(?m)^directory.id=.*$", f"directory.id={_directory_id()}", text))


def _template(version: str, *, voter: bool, tool: Callable[[Path], None]) -> Path:
    """A directory that the tool formatted, from the cache. Safe beside other processes."""
    locked = "\n".join(map(str, read_lock(version)))
    wanted = format_properties(voter=voter, log_dirs="LOG")
    key = hashlib.sha256(f"{CLUSTER_ID}\n{wanted}\n{locked}".encode()).hexdigest()[:16]
    place = cache_directory() / "formatted" / f"{version}-{key}"
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{version}-", dir=place.parent) as directory:
        properties, fresh = Path(directory) / "properties", Path(directory) / "log"
        properties.write_text(format_properties(voter=voter, log_dirs=str(fresh)))
        tool(properties)
        try:
            fresh.rename(place)
        except OSError:
            if not place.is_dir():  # unless another process was faster
                raise
    return place


def format_properties(*, voter: bool, log_dirs: str) -> str:
    """A broker's properties as far as formatting depends on them; ids and ports stand for any."""
    properties = {
        "process.roles": "broker,controller" if voter else "broker",
        "node.id": "0",
        "controller.quorum.voters": f"{0 if voter else 1}@{HOST}:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:9092" + (f",CONTROLLER://{HOST}:9093" if voter else ""),
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": log_dirs,
    }
    return render(properties)


def _directory_id() -> str:
    """A random id as Kafka writes it (org.apache.kafka.common.Uuid): none begins with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
