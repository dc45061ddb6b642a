"""A job for Java, with the jars of any Kafka release: a script of ours drives it through py4j.

py4j carries a gateway into a Java process, so nothing is compiled here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from tests.clients.model import ClientError
from tests.clients.worker_client import installed
from tests.kafka import jars
from tests.kafka.java import java_command

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PY4J: Final = "0.10.9.9"


def run_java(release: str, worker: Path, what: str, job: Mapping[str, Any], timeout_s: float = 120.0) -> Any:
    """Have `worker` do a job, JSON in and out; `what` it is, for errors. Raises ClientError.

    The job also tells how to start Java: `java`, `jar` (py4j's), `classpath`.
    """
    site = installed(f"py4j-{PY4J}", f"py4j=={PY4J}")
    start = {
        "java": java_command(),
        "jar": str(site / "share" / "py4j" / f"py4j{PY4J}.jar"),
        "classpath": os.pathsep.join(map(str, jars.classpath(release, print))),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(worker)],
            input=json.dumps(start | dict(job)),
            env=dict(os.environ) | {"PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClientError(f"{what} {release} hung for {error.timeout:.0f} s") from error
    if done.returncode != 0:
        raise ClientError(f"{what} {release} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)
