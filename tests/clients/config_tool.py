"""Kafka's kafka-configs, unmodified, of any release: many calls in one Java process.

A start takes seconds. py4j calls the main method of the tool's class with the arguments that a shell would
give it, and sees what it prints and with which status it wants to end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.clients.java_admin import PY4J
from tests.clients.model import ClientError
from tests.clients.worker_client import installed
from tests.kafka import jars
from tests.kafka.jars import version_tuple
from tests.kafka.java import java_command

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
    site = installed(f"py4j-{PY4J}", f"py4j=={PY4J}")
    job = {
        "java": java_command(),
        "jar": str(site / "share" / "py4j" / f"py4j{PY4J}.jar"),
        "classpath": os.pathsep.join(map(str, jars.classpath(release, print))),
        "options": [_SILENT_FROM_4_0 if version_tuple(release) >= (4, 0) else _SILENT],
        "calls": [list(call) for call in calls],
    }
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(_WORKER)],
            input=json.dumps(job),
            env=dict(os.environ) | {"PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClientError(f"kafka-configs of {release} hung for {error.timeout:.0f} s") from error
    if done.returncode != 0:
        raise ClientError(f"kafka-configs of {release} failed:\n{done.stderr[-3000:]}")
    return [Said(**said) for said in json.loads(done.stdout)]
