"""A job for Java, with the jars of any Kafka release: a Python process drives it through py4j.

py4j carries a gateway into a Java process, so nothing is compiled here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.clients.model import ClientError
from tests.clients.worker_client import installed
from tests.kafka import jars
from tests.kafka.class_archive import ClassArchive
from tests.kafka.java import java_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PY4J: Final = "0.10.9.9"
_REPOSITORY: Final = Path(__file__).parents[2]


def start_of_java(release: str, options: Sequence[str] = ()) -> dict[str, Any]:
    """How a worker starts Java: `java`, `jar` and `classpath` (the first jar and the others), `options`.

    Kafka's jars come before py4j's, because the class archive is of a class path that begins with them.
    """
    jar, *others = paths = jars.classpath(release, print)
    others.append(_site() / "share" / "py4j" / f"py4j{PY4J}.jar")
    return {
        "java": java_command(),
        "jar": str(jar),
        "classpath": os.pathsep.join(map(str, others)),
        "options": [*ClassArchive(java_command(), paths).options(), *options],
        "timed_poll": jars.version_tuple(release) < (2, 0),
    }


def environment() -> dict[str, str]:
    """What a worker needs. Raises ClientError if py4j cannot be installed."""
    return dict(os.environ) | {"PYTHONPATH": f"{_site()}{os.pathsep}{_REPOSITORY}"}


def command(worker: str) -> list[str]:
    return [sys.executable, "-P", "-m", f"{__package__}.{worker}"]


def run_java(
    release: str,
    worker: str,
    what: str,
    job: Mapping[str, Any],
    timeout_s: float = 120.0,
    options: Sequence[str] = (),
) -> Any:
    """Have the module `worker` do a job, JSON in and out; `what` it is, for errors. Raises ClientError.

    `options` are Java's. The job also tells how to start Java: see `start_of_java`.
    """
    try:
        done = subprocess.run(
            command(worker),
            input=json.dumps(start_of_java(release, options) | dict(job)),
            env=environment(),
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


def _site() -> Path:
    return installed(f"py4j-{PY4J}", f"py4j=={PY4J}")
