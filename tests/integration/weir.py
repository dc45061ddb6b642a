"""Weir as its users run it: the `weir` command in a process of its own, in front of a real cluster."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kafka.ports import free_range
from tests.kafka.processes import Processes

START_S = 90.0
STOP_S = 60.0
BROKERS = 5
NAME = "weir"


class WeirError(Exception):
    """Weir did not start or stop as it should; says what its log ends with."""


class Weir:
    """A running `weir run`; a context manager."""

    def __init__(
        self, upstream: str, quotas: str = "", *, host: str = "127.0.0.1", options: tuple[str, ...] = ()
    ) -> None:
        """`quotas` is the text of a quota file, `options` further options of `weir run`."""
        self._processes = Processes("weir-proxy-")
        self.quota_file = Path(self._processes.data) / "quotas.toml"
        self.quota_file.write_text(quotas, "utf-8")
        self._host = host
        self.port = free_range(1 + BROKERS)
        self._command = [
            *(sys.executable, "-m", "weir.cli", "run"),
            *("--upstream", upstream),
            *("--listen", f"{self._bracketed}:{self.port}"),
            *("--broker-ports", f"{self.port + 1}-{self.port + BROKERS}"),
            *("--quotas", str(self.quota_file)),
            *("--log-level", "debug"),
            *options,
        ]

    @property
    def bootstrap(self) -> str:
        return f"{self._bracketed}:{self.port}"

    @property
    def _bracketed(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host

    @property
    def log(self) -> str:
        return self._processes.log(NAME).read_text("utf-8", "replace")

    def written(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self._processes.directory.rglob("*") if path.is_file()}

    @property
    def pid(self) -> int:
        return self._processes.pid(NAME)

    def start(self) -> Self:
        """Return once it has said that it listens. Raises WeirError."""
        self._processes.start(NAME, self._command)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if not self._processes.running(NAME):
                raise WeirError(f"weir ended with {self._processes.exit_status(NAME)}: {self.log[-2000:]}")
            if '"event": "worker started"' in self.log:
                return self
            time.sleep(0.05)  # between tries to connect; nothing is decided by it
        raise WeirError(f"weir does not listen after {START_S} s: {self.log[-2000:]}")

    def restart(self, *options: str) -> None:
        assert self.stop() == 0
        self._command += options
        self.start()

    def stop(self) -> int:
        os.kill(self.pid, signal.SIGTERM)
        return self._processes.wait(NAME, STOP_S)

    def close(self, *, keep_logs: bool = False) -> None:
        """End it by force if it still runs; delete what it wrote."""
        self._processes.close(keep_logs=keep_logs)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            sys.stderr.write(f"the end of weir's log:\n{self.log[-4000:]}\n")
        self.close()
