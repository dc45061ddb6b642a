"""Java's producer and consumer, of any Kafka release: several exchanges in one Java process."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.clients.java_admin import PY4J
from tests.clients.model import ClientError
from tests.clients.worker_client import installed
from tests.kafka import jars
from tests.kafka.java import java_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WORKER = Path(__file__).with_name("java_records_worker.py")
_TIMEOUT_S = 120.0


class Exchange(NamedTuple):
    """Messages to send to partition 0 of a topic that is empty, and to read from it again."""

    topic: str
    messages: Sequence[bytes]
    config: Mapping[str, str]
    """Of producer and consumer alike, besides bootstrap.servers."""


class JavaRecords:
    """The clients of Kafka `release`, which must be one that the tests have jars of."""

    def __init__(self, release: str, bootstrap: str) -> None:
        self._release = release
        self._bootstrap = bootstrap

    def run(self, *exchanges: Exchange) -> list[list[bytes]]:
        """What each exchange's consumer got, in order. Raises ClientError."""
        site = installed(f"py4j-{PY4J}", f"py4j=={PY4J}")
        job: dict[str, Any] = {
            "java": java_command(),
            "jar": str(site / "share" / "py4j" / f"py4j{PY4J}.jar"),
            "classpath": os.pathsep.join(map(str, jars.classpath(self._release, print))),
            "timed_poll": jars.version_tuple(self._release) < (2, 0),
            "exchanges": [
                {
                    "topic": exchange.topic,
                    "messages": [base64.b64encode(message).decode() for message in exchange.messages],
                    "config": {"bootstrap.servers": self._bootstrap} | dict(exchange.config),
                }
                for exchange in exchanges
            ],
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
            raise ClientError(f"Java's clients {self._release} hung for {error.timeout:.0f} s") from error
        if done.returncode != 0:
            raise ClientError(f"Java's clients {self._release} failed:\n{done.stderr[-3000:]}")
        return [[base64.b64decode(value) for value in values] for values in json.loads(done.stdout)]
