"""What Java calls the subject of a certificate, and Kafka its owner: the oracle of `proxy.tls`."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.clients.java_admin import PY4J
from tests.clients.worker_client import installed
from tests.kafka import jars
from tests.kafka.java import java_command

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORKER = Path(__file__).with_name("java_names_worker.py")
_TIMEOUT_S = 60.0


class Names(NamedTuple):
    """What came of a job, in its order."""

    subjects: list[str]
    names: list[str | None]
    """None where Kafka fails."""


def ask_java(release: str, *, names: Sequence[bytes] = (), mappings: Sequence[tuple[str, str]] = ()) -> Names:
    """Have Java write DER names, and Kafka map subjects: (rules, subject)."""
    site = installed(f"py4j-{PY4J}", f"py4j=={PY4J}")
    job = {
        "java": java_command(),
        "jar": str(site / "share" / "py4j" / f"py4j{PY4J}.jar"),
        "classpath": os.pathsep.join(map(str, jars.classpath(release, print))),
        "names": [base64.b64encode(name).decode() for name in names],
        "mappings": list(mappings),
    }
    done = subprocess.run(
        [sys.executable, "-P", str(_WORKER)],
        input=json.dumps(job),
        env=dict(os.environ) | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    )
    return Names(**json.loads(done.stdout))
