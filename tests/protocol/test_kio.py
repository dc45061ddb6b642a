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
NOT_IN_OLD_KIO: Final = 90
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

# Where kio 0.5.0 was generated from a schema that Kafka has since changed, and why ours is right.
OLD_KIO_DIFFERS: Final = {
    (
        "ReadShareGroupStateSummaryResponse",
        0,
    ): "unstable in 3.9, without leader_epoch; released with it in 4.x",
    (
        "ListConfigResourcesResponse",
        0,
    ): "3.9 called the array and its field otherwise; the bytes are the same",
}


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
    versions = [(message, version) for message, version in every_version() for _ in samples(message, version)]
    values = [value for message, version in every_version() for value in samples(message, version)]
    every_job = [job for message, version in every_version() for job in jobs(message, version)]
    answers = _ask(old_kio, every_job)

    unknown, differing = set(), set()
    for (message, version), value, theirs in zip(versions, values, answers, strict=True):
        name = (message.__name__, version)
        if theirs is None:
            unknown.add(name)
        elif codec(message, version).encode(value) != theirs:
            differing.add(name)
        else:
            assert codec(message, version).decode(theirs) == value
    assert differing == OLD_KIO_DIFFERS.keys()
    assert len(unknown) == NOT_IN_OLD_KIO


@pytest.mark.oracle
def test_one_kio_or_the_other_has_every_version(old_kio: Path) -> None:
    missing = [each for each in every_version() if each not in KNOWN]
    answers = _ask(old_kio, [jobs(*each)[0] for each in missing])
    newer = [version_id(*each) for each, answer in zip(missing, answers, strict=True) if answer is None]
    assert set(newer) == {
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
