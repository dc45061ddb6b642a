"""Java's AdminClient, of any Kafka release, as applications use it: with its own defaults.

The command-line tools are AdminClients too, but tell theirs not to wait for quotas. py4j carries a gateway
into a Java process, so nothing is compiled here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.clients.admin import Outcome
from tests.clients.model import ClientError
from tests.clients.worker_client import installed
from tests.kafka import jars
from tests.kafka.java import java_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.clients.admin import Step

PY4J = "0.10.9.9"
_WORKER = Path(__file__).with_name("java_admin_worker.py")
_TIMEOUT_S = 120.0


class JavaAdmin:
    """The AdminClient of Kafka `release`, which must be one that the tests have jars of."""

    def __init__(self, release: str, bootstrap: str, config: Mapping[str, str] | None = None) -> None:
        """`config` holds further settings of the AdminClient."""
        self._release = release
        self._config = {"bootstrap.servers": bootstrap} | dict(config or {})

    def run(self, *steps: Step) -> Sequence[Outcome]:
        """See `admin.Admin`. Partitions of created topics are told; errors are classes of exceptions."""
        site = installed(f"py4j-{PY4J}", f"py4j=={PY4J}")
        job: dict[str, Any] = {
            "java": java_command(),
            "jar": str(site / "share" / "py4j" / f"py4j{PY4J}.jar"),
            "classpath": os.pathsep.join(map(str, jars.classpath(self._release, print))),
            "config": self._config,
            "steps": [step._asdict() | {"topics": dict(step.topics)} for step in steps],
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
            raise ClientError(f"Java's AdminClient {self._release} hung for {error.timeout:.0f} s") from error
        if done.returncode != 0:
            raise ClientError(f"Java's AdminClient {self._release} failed:\n{done.stderr[-3000:]}")
        return [Outcome(**outcome) for outcome in json.loads(done.stdout)]
