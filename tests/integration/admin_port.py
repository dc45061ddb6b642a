"""The admin endpoint of a Weir process."""

from __future__ import annotations

import http.client
import time
from contextlib import closing

from tests.kafka.ports import free_range
from tests.proxy.metrics_page import Page

HOST = "127.0.0.1"
PATIENCE_S = 90.0


class Admin:
    def __init__(self) -> None:
        self.port = free_range(1)
        self.options = ("--admin", f"{HOST}:{self.port}")

    def get(self, path: str) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection(HOST, self.port, timeout=PATIENCE_S)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def metrics(self) -> Page:
        status, text = self.get("/metrics")
        assert status == 200
        return Page(text)

    def settled(self) -> Page:
        """The metrics with all that happened before this call: workers report once a second, and the report
        after the next one began later. Each counts at least one turn.
        """
        for _ in range(2):
            before = self.metrics()["weir_turn_seconds_count"]
            deadline = time.monotonic() + PATIENCE_S
            while self.metrics()["weir_turn_seconds_count"] == before:
                assert time.monotonic() < deadline, "no worker reports"
                time.sleep(0.1)  # between questions; nothing is decided by it
        return self.metrics()

    def wait_for(self, status: int) -> bytes:
        """Ask until the answer has this status; return its text."""
        deadline, seen = time.monotonic() + PATIENCE_S, b""
        while time.monotonic() < deadline:
            answered, seen = self.get("/readyz")
            if answered == status:
                return seen
            time.sleep(0.2)  # between questions; nothing is decided by it
        raise AssertionError(f"/readyz was not {status} within {PATIENCE_S} s; at last it said {seen!r}")
