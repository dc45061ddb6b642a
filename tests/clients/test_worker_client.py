"""A process that does a client's jobs: one for all of them, and what becomes of those that go wrong."""

from __future__ import annotations

import importlib.metadata
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.clients import ClientError, worker_client
from tests.clients.worker_client import WorkerClient

if TYPE_CHECKING:
    from pathlib import Path

WORKER = """
import json, os, sys, time

while line := sys.stdin.readline():
    job = json.loads(line)
    if job["topic"] == "broken":
        sys.exit("it broke")
    if job["topic"] == "hangs":
        time.sleep(60)
    result = {"seconds": os.getpid(), "throttle_max_ms": 0, "throttle_ms": [], "version": sys.argv[1]}
    print(json.dumps(result), flush=True)
"""


class Fake(WorkerClient):
    """Its `seconds` are the process id; it is of the version of a library that is here in any case."""

    library = "pytest"
    version: ClassVar[str] = importlib.metadata.version("pytest")

    @property
    def command(self) -> list[str]:
        return [*super().command, self.version]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    monkeypatch.setattr(Fake, "worker", worker, raising=False)
    return Fake()


def pid(client: WorkerClient) -> float:
    return client.produce("nowhere:1", "topic", []).seconds


def test_running_client_does_all_jobs_in_one_process(fake: Fake) -> None:
    with fake.running() as running:
        assert pid(running) == pid(running)
        assert pid(fake) != pid(running)


def test_client_does_each_job_in_a_process_of_its_own(fake: Fake) -> None:
    assert pid(fake) != pid(fake)


def test_process_that_fails_is_an_error_with_its_words(fake: Fake) -> None:
    with pytest.raises(ClientError, match="pytest failed:\nit broke"):
        fake.produce("nowhere:1", "broken", [])
    with pytest.raises(ClientError, match="it broke"), fake.running() as running:
        running.produce("nowhere:1", "broken", [])


def test_job_after_a_failed_one_fails_as_well(fake: Fake) -> None:
    def fail_twice() -> None:
        with fake.running() as running:
            with suppress(ClientError):
                running.produce("nowhere:1", "broken", [])
            pid(running)

    with pytest.raises(ClientError, match="it broke"):
        fail_twice()


def test_process_that_hangs_is_killed(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_client, "_START_S", 0.5)
    with pytest.raises(ClientError, match="pytest hung for 1 s"):
        fake.produce("nowhere:1", "hangs", [], timeout_s=0.5)


def test_another_version_than_asked_for_is_an_error(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "version", "0.1")
    with pytest.raises(ClientError, match=r"pytest 0\.1 ran where"):
        pid(fake)
