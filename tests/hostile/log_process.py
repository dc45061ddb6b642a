"""`weir run` with a standard error of the test's choice."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Self

from tests.hostile.conftest import Brokers
from tests.hostile.stage import PATIENCE_S, PING, PONG, ask, until
from tests.kafka.ports import free_range
from tests.kafka.settings import HOST

NODES = 3


class LoggingWeir:
    """A running Weir in front of stand-in brokers; a context manager."""

    def __init__(
        self, brokers: Brokers, stderr: int | IO[bytes], limit: Callable[[], None] | None = None
    ) -> None:
        """`limit` is called in the new process before Weir begins."""
        self.port = free_range(NODES + 2)
        self.admin_port = self.port + NODES + 1
        command = [
            *(sys.executable, "-m", "weir.cli", "run"),
            *("--upstream", f"{HOST}:{brokers.port}", "--listen", f"{HOST}:{self.port}"),
            *("--broker-ports", f"{self.port + 1}-{self.port + NODES}"),
            *("--admin", f"{HOST}:{self.admin_port}"),
            *("--log-level", "debug"),
        ]
        self.process = subprocess.Popen(command, stderr=stderr, preexec_fn=limit)

    def __enter__(self) -> Self:
        until(self._serves, lambda: f"weir listens; exit status {self.process.poll()}")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def _serves(self) -> bool:
        with suppress(OSError), self.connect():
            return True
        return False

    def connect(self) -> socket.socket:
        """A client of the first broker's listener; it waits `PATIENCE_S` at most."""
        return socket.create_connection((HOST, self.port + 1), PATIENCE_S)

    def cause_log_lines(self, clients: int) -> None:
        """Open connections one after another; each end is a line at the level debug."""
        for _ in range(clients):
            with self.connect() as sock:
                assert ask(sock, PING) == PONG

    def lines_lost(self) -> int:
        with urllib.request.urlopen(f"http://{HOST}:{self.admin_port}/metrics", timeout=PATIENCE_S) as page:
            for line in page.read().decode().splitlines():
                if line.startswith("weir_log_lines_lost_total "):
                    return int(float(line.split()[1]))
        raise AssertionError("no metric of lost log lines")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def stopped_within_s(self) -> float:
        """Stop it, with exit status 0, and return the time."""
        began = time.monotonic()
        assert self.stop() == 0
        return time.monotonic() - began
