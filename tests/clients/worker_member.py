"""A member of a consumer group, in a process of its own, that reports what it has handled as it goes.

The worker gets its job on the first line of stdin and leaves the group at the second. It writes JSON lines:
`{"partitions": 2}` when it was assigned some, `{"records": [[partition, value in base64], …]}` when it has
committed these, and a last one with its version.
"""

from __future__ import annotations

import base64
import json
import queue
import tempfile
import threading
from typing import TYPE_CHECKING, Any, Self

from tests.clients.model import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from tests.clients.worker_client import WorkerClient

_TURN_S, _LEAVE_S = 0.01, 60.0


class WorkerMember:
    """Joins at once; a context manager that leaves the group at its end."""

    def __init__(
        self, client: WorkerClient, bootstrap: str, group: str, topic: str, config: Mapping[str, Any]
    ) -> None:
        self.handled: list[tuple[int, bytes]] = []
        self.partitions = 0
        self._name = client.name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed when the member has left)
        self._process = client.start(self._errors)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        job = {"do": "member", "bootstrap": bootstrap.split(","), "group": group, "topic": topic}
        self._tell(json.dumps(job | {"client_id": "weir-tests", "config": dict(config)}))

    def turn(self) -> None:
        """Take note of its next report, if there is one. Raises ClientError if it has ended."""
        try:
            line = self._lines.get(timeout=_TURN_S)
        except queue.Empty:
            return
        if line is None:
            raise ClientError(f"{self._name} left by itself: {self._complaint()}")
        self._note(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._tell("leave")
                if self._process.stdin is not None:
                    self._process.stdin.close()  # no further job
                while (line := self._lines.get(timeout=_LEAVE_S)) is not None:
                    self._note(line)
                if self._process.wait(_LEAVE_S) != 0:
                    raise ClientError(f"{self._name} failed: {self._complaint()}")
        except queue.Empty as hung:
            raise ClientError(f"{self._name} did not leave within {_LEAVE_S:.0f} s") from hung
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            for pipe in (self._process.stdin, self._process.stdout, self._errors):
                if pipe is not None:
                    pipe.close()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line)
        self._lines.put(None)

    def _tell(self, line: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _note(self, line: str) -> None:
        report = json.loads(line)
        self.partitions = report.get("partitions", self.partitions)
        self.handled += [(number, base64.b64decode(value)) for number, value in report.get("records", ())]

    def _complaint(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-2000:]
