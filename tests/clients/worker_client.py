"""A Python client library, the installed release or another one, its jobs in processes of their own."""

from __future__ import annotations

import base64
import copy
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

from tests.clients.model import Acks, ClientError, Consumed, Produced, Record
from tests.kafka.jars import cache_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

_START_S, _END_S = 30.0, 30.0
_CODECS = ("cramjam==2.14.0", "lz4==4.4.5", "python-snappy==0.7.3", "zstandard==0.25.0")
"""What the libraries need for compression other than gzip."""


class WorkerClient:
    """See `model.Client`. A subclass names the library and the script that does jobs, a line of JSON each."""

    library: ClassVar[str]
    worker: ClassVar[Path]

    def __init__(self, release: str | None = None, *, codecs: bool = False) -> None:
        """`codecs` adds the libraries that snappy, lz4 and zstd need."""
        self.release = release
        self._codecs = codecs
        self._worker: Worker | None = None

    @property
    def name(self) -> str:
        """For test ids."""
        return f"{self.library}-{self.release}" if self.release else self.library

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[bytes],
        *,
        acks: Acks = "all",
        partition: int | None = None,
        client_id: str = "weir-tests",
        config: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
    ) -> Produced:
        job: dict[str, Any] = {"do": "produce", "acks": acks, "partition": partition}
        job |= {"messages": [base64.b64encode(message).decode() for message in messages]}
        result = self._run(job | _common(bootstrap, topic, client_id, config, timeout_s))
        return Produced(result["seconds"], result["throttle_max_ms"], tuple(result["throttle_ms"]))

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        group: str | None = None,
        client_id: str = "weir-tests",
        config: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
    ) -> Consumed:
        """See `model.Client`."""
        job = {"do": "consume", "count": count, "group": group}
        result = self._run(job | _common(bootstrap, topic, client_id, config, timeout_s))
        records = tuple(
            Record(partition, offset, base64.b64decode(value), at_s)
            for partition, offset, value, at_s in result["records"]
        )
        if len(records) < count:
            raise ClientError(f"{len(records)} of {count} records after {result['seconds']:.1f} s")
        return Consumed(records, result["seconds"], result["throttle_max_ms"], tuple(result["throttle_ms"]))

    @contextmanager
    def running(self) -> Iterator[Self]:
        """See `model.Client`: one process does all jobs."""
        client = copy.copy(self)
        with Worker(self) as client._worker:
            yield client

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-P", str(self.worker)]

    def environment(self) -> dict[str, str]:
        """What the command needs. Raises ClientError if a release cannot be installed."""
        return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(map(str, self._directories()))}

    def start(self, errors: IO[str]) -> subprocess.Popen[str]:
        """Start the process, its standard error into a file. Raises ClientError."""
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=self.environment(),
            text=True,
        )

    # How it is done.

    def _run(self, job: dict[str, Any]) -> dict[str, Any]:
        if self._worker is None:
            with Worker(self) as worker:
                result = worker.do(job)
        else:
            result = self._worker.do(job)
        expected = self.release or importlib.metadata.version(self.library)
        if result["version"] != expected:
            raise ClientError(f"{self.library} {result['version']} ran where {expected} was asked for")
        return result

    def _directories(self) -> list[Path]:
        directories = []
        if self.release is not None:
            directories.append(installed(self.name, f"{self.library}=={self.release}"))
        if self._codecs:
            directories.append(installed("codecs", *_CODECS))
        return directories


class Worker:
    """A process that does a client's jobs, one after another; a context manager. All raise ClientError."""

    def __init__(self, client: WorkerClient) -> None:
        self._name = client.name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed when the process has ended)
        self._process = client.start(self._errors)

    def do(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """The job's result. A process that does not answer in time is killed."""
        patience_s = job["timeout_s"] + _START_S
        killer = Timer(patience_s, self._process.kill)
        killer.start()
        try:
            line = self._answer(json.dumps(job))
            hung = killer.finished.is_set()
        finally:
            killer.cancel()
        if hung:
            raise ClientError(f"{self._name} hung for {patience_s:.0f} s")
        if not line:
            self._process.wait(_END_S)
            raise ClientError(f"{self._name} failed:\n{self._complaint()}")
        result: dict[str, Any] = json.loads(line)
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end_input()
            if kind is None and self._process.wait(_END_S) != 0:
                raise ClientError(f"{self._name} failed:\n{self._complaint()}")
        except subprocess.TimeoutExpired as hung:
            raise ClientError(f"{self._name} did not end within {_END_S:.0f} s") from hung
        finally:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._errors.close()

    def _answer(self, job: str) -> str:
        """Empty if the process has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            return ""
        with suppress(BrokenPipeError):
            stdin.write(job + "\n")
            stdin.flush()
            return stdout.readline()
        return ""

    def _end_input(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # of a job that an ended process did not read
                self._process.stdin.close()

    def _complaint(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:]


def _common(
    bootstrap: str, topic: str, client_id: str, config: Mapping[str, Any] | None, timeout_s: float
) -> dict[str, Any]:
    options = {"client_id": client_id, "config": dict(config or {}), "timeout_s": timeout_s}
    return {"bootstrap": bootstrap.split(","), "topic": topic} | options


def installed(name: str, *requirements: str) -> Path:
    """The directory `name` with these requirements, installed by pip on first use. Raises ClientError.

    Safe beside other processes: each installs into a directory of its own and renames it.
    """
    target = cache_directory() / "clients" / name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=target.parent) as directory:
        fresh = Path(directory) / "site"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--target", str(fresh), *requirements]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClientError(f"could not install {' '.join(requirements)}:\n{done.stderr[-2000:]}")
        try:
            fresh.rename(target)
        except OSError:
            if not target.is_dir():  # unless another process was faster
                raise
    return target
