"""kio, an independent codec generated from Kafka's schemas, writes the same bytes for the same values.

0.6.5 has the versions of Kafka 4.2. 0.5.0, which still has the oldest ones, is installed beside it and runs
in an interpreter of its own.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.protocol import kio_side
from tests.protocol.generate import each_version, every_version, version_id
from tests.protocol.kio_samples import KNOWN, jobs, samples
from weir.protocol.codec import codec
from weir.protocol.values import Message

OLD_KIO: Final = "0.5.0"
NEWER_THAN_KIO: Final = {
    "ApiVersions": 5,
    "TxnOffsetCommit": 6,
    "DeleteGroups": 3,
    "StreamsGroupHeartbeat": 1,
    "StreamsGroupDescribe": 1,
    "StreamsGroupTopologyDescriptionUpdate": 0,
    "UnregisterController": 0,
}
"""Versions of Kafka 4.3 and 4.4: held to Kafka's own classes (test_kafka_encodings.py)."""


@each_version(KNOWN)
def test_kio_writes_the_same_bytes(message: type[Message], version: int) -> None:
    ours = codec(message, version)
    for value, job in zip(samples(message, version), jobs(message, version), strict=True):
        theirs = kio_side.encode(job)
        assert ours.encode(value) == theirs
        assert isinstance(theirs, bytes)
        assert ours.decode(theirs) == value


@pytest.fixture(scope="module")
def old_kio() -> Iterator[Path]:
    """Where kio 0.5.0 lies; installed once into the repository's cache."""
    cache = Path(os.environ.get("WEIR_CACHE") or Path(__file__).parents[2] / ".cache")
    target = cache.absolute() / f"kio-{OLD_KIO}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / f"kio-{OLD_KIO}.dist-info").exists():
            install = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
            ]
            subprocess.run([*install, "--target", str(target), f"kio=={OLD_KIO}"], check=True)
        yield target


@pytest.mark.oracle
def test_an_older_kio_writes_the_same_bytes_for_the_oldest_versions(old_kio: Path) -> None:
    """Those that the newer kio lacks. Kafka has changed schemas since the older one was made."""
    oldest = [(*each, value) for each in every_version() if each not in KNOWN for value in samples(*each)]
    answers = _ask(old_kio, [job for each in every_version() if each not in KNOWN for job in jobs(*each)])
    unknown = set()
    for (message, version, value), theirs in zip(oldest, answers, strict=True):
        if theirs is None:
            unknown.add(version_id(message, version))
        else:
            assert codec(message, version).encode(value) == theirs, version_id(message, version)
            assert isinstance(theirs, bytes)
            assert codec(message, version).decode(theirs) == value
    assert unknown == {
        f"{name}{kind}-v{version}"
        for name, version in NEWER_THAN_KIO.items()
        for kind in ("Request", "Response")
    }


def _ask(kio: Path, every_job: list[kio_side.Job]) -> list[bytes | str | None]:
    finished = subprocess.run(
        [sys.executable, "-P", kio_side.__file__],
        input=pickle.dumps(every_job),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(kio)},
        check=True,
    )
    answers: list[bytes | str | None] = pickle.loads(finished.stdout)  # noqa: S301  # written by our own script
    return answers
