"""Kafka's kafka-configs, unmodified, of any release: many calls in one Java process.

A start takes seconds. py4j calls the main method of the tool's class with the arguments that a shell would
give it, and sees what it prints and with which status it wants to end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.clients.java_worker import run_java
from tests.kafka.jars import version_tuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORKER = Path(__file__).with_name("config_tool_worker.py")
_SILENT = f"-Dlog4j.configuration=file:{_WORKER.with_name('silent.properties')}"
_SILENT_FROM_4_0 = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
"""No logs of the client's between the lines of the tool."""
_TIMEOUT_S = 180.0


class Said(NamedTuple):
    """What became of a call."""

    status: int
    out: str
    err: str


def kafka_configs(release: str, calls: Sequence[Sequence[str]]) -> list[Said]:
    """Call kafka-configs of a release with each of these arguments. Raises ClientError."""
    job = {
        "options": [_SILENT_FROM_4_0 if version_tuple(release) >= (4, 0) else _SILENT],
        "calls": [list(call) for call in calls],
    }
    said = run_java(release, _WORKER, "kafka-configs of", job, _TIMEOUT_S)
    return [Said(**each) for each in said]
