"""Reads a Weir's log and admin endpoint as an operator's programs would, and notes when each first tells."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.kafka.settings import HOST

PERIOD_S: Final = 0.1
"""Time (s) between two looks: the precision of all times here."""
PATIENCE_S: Final = 2.0
"""Time (s) for which a request to the admin endpoint may take."""
QUIET_S: Final = 60.0
"""Time (s) without an event or a comment after which a reader of events gives up."""


class Told(NamedTuple):
    text: str
    after_s: float
    """Time (s) since the problem was planted."""


@dataclass
class Channels:
    """The first sentence of each channel; None while there is none."""

    log: Told | None = None
    page: Told | None = None
    event: Told | None = None
    metric: Told | None = None
    readyz: Told | None = None


@dataclass(frozen=True)
class Expected:
    """Patterns of the sentences to wait for; an empty one waits for nothing."""

    log: str = ""
    page: str = ""
    event: str = ""
    metric: str = ""
    """A pattern of one line of /metrics."""
    readyz: str = ""


class Watch:
    """Watches one Weir from the moment a problem is planted."""

    def __init__(self, log: Path, admin: int, expected: Expected, token: str = "") -> None:
        """Begin now: earlier lines and events do not count."""
        self._log = log
        self._skip = log.stat().st_size if log.exists() else 0
        self._admin = admin
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._expected = expected
        self.found = Channels()
        self._over = threading.Event()
        self._events: list[Told] = []
        self._began_s = time.monotonic()
        self._reads = threading.Event()
        threading.Thread(target=self._read_events, daemon=True).start()
        self._reads.wait(PATIENCE_S)

    def plant(self, plant: Callable[[], object]) -> None:
        plant()
        self._began_s = time.monotonic()

    def until(self, patience_s: float) -> Channels:
        """Look until all expected sentences were told, or until `patience_s` is over."""
        expected = {name: pattern for name, pattern in vars(self._expected).items() if pattern}
        while time.monotonic() - self._began_s < patience_s:
            self._look()
            if all(getattr(self.found, name) is not None for name in expected):
                break
            time.sleep(PERIOD_S)  # the period of looks; see PERIOD_S
        self._over.set()
        return self.found

    def _look(self) -> None:
        self._note("log", self._log_lines())
        self._note("event", list(self._events))
        with suppress(OSError, http.client.HTTPException, ValueError):
            status = json.loads(self._get("/api/status"))
            told = [f"{problem['what']} {problem['remedy']}" for problem in status["problems"]]
            told += [entity["sentence"] for entity in json.loads(self._get("/api/throttled"))["entities"]]
            self._note("page", [self._told(text) for text in told])
            metrics = self._get("/metrics").decode()
            self._note("metric", [self._told(line) for line in metrics.splitlines()])
            self._note("readyz", [self._told(self._get("/readyz").decode().strip())])

    def _note(self, channel: str, told: list[Told]) -> None:
        pattern = getattr(self._expected, channel)
        if pattern and getattr(self.found, channel) is None:
            for each in told:
                if re.search(pattern, each.text):
                    setattr(self.found, channel, each)
                    return

    def _told(self, text: str) -> Told:
        return Told(text, time.monotonic() - self._began_s)

    def _get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection(HOST, self._admin, timeout=PATIENCE_S)
        try:
            connection.request("GET", path, headers=self._headers)
            return connection.getresponse().read()
        finally:
            connection.close()

    def _log_lines(self) -> list[Told]:
        if not self._log.exists():
            return []
        with self._log.open("rb") as file:
            file.seek(self._skip)
            new = file.read()
        complete = new[: new.rfind(b"\n") + 1]
        self._skip += len(complete)
        return [self._told(text) for text in complete.decode("utf-8", "replace").splitlines()]

    def _read_events(self) -> None:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(HOST, self._admin, timeout=QUIET_S)
            connection.request("GET", "/api/events", headers=self._headers)
            response = connection.getresponse()
            self._reads.set()
            while not self._over.is_set():
                line = response.readline()
                if not line:
                    return
                if line.startswith(b"data:"):
                    self._events.append(self._told(line[5:].decode().strip()))
