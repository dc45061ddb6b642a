"""One Weir in front of stub brokers, each a process, and raw clients."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final, Self

from tests.kafka.ports import free_range
from tests.kafka.processes import Processes
from tests.kafka.settings import HOST
from tests.night.watch import Expected, Watch
from tests.wire.frames import request
from weir.protocol.messages import MetadataRequest

ROOT: Final = Path(__file__).parents[2]
START_S: Final = 120.0
METADATA: Final = request(MetadataRequest(topics=[]), 9, client_id=b"night")


class Scene:
    def __init__(self, settings: Mapping[str, object], brokers: int = 2, kind: str = "sound") -> None:
        """`settings` are more keys of the configuration file; `brokers` brokers run, of a kind that
        `tests.kfake.process` names.
        """
        self._processes = Processes("weir-night-")
        self.directory = self._processes.data
        self.kind = kind
        self.first_broker = free_range(4)
        self.port, self.admin = free_range(8), free_range(1)
        self.brokers = brokers
        self._settings = settings
        self.prefix: list[str] = []
        """Words before the command of Weir."""
        self.environment: dict[str, str] = {}
        self._clients: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for client in self._clients:
            client.close()
        self._processes.close()

    @property
    def log(self) -> Path:
        return self._processes.log("weir")

    @property
    def pid(self) -> int:
        return self._processes.pid("weir")

    def serving_worker_pid(self) -> int:
        """Return the pid of a worker that has a client; another one may not be ready yet."""
        while True:
            with urllib.request.urlopen(f"http://{HOST}:{self.admin}/api/status", timeout=2) as answer:
                for worker in json.load(answer)["workers"]:
                    if worker["connections"]:
                        return int(worker["pid"])

    def broker_pid(self, node: int) -> int:
        return self._processes.pid(f"broker-{node}")

    def start_brokers(self, listed: int | None = None) -> None:
        """Start the brokers; each says that the cluster has `listed` brokers."""
        for node in range(self.brokers):
            ports = (str(self.first_broker), str(listed or self.brokers), str(node))
            self._start(f"broker-{node}", [sys.executable, "-m", "tests.kfake.process", self.kind, *ports])
        for node in range(self.brokers):
            self._until_listens(self.first_broker + node)

    def kill_broker(self, node: int) -> None:
        self._processes.kill(f"broker-{node}")

    def kill_brokers(self) -> None:
        for node in range(self.brokers):
            self.kill_broker(node)

    def start_weir(self, *, ready: bool = True) -> None:
        """Start Weir; wait until it is ready (or else only started)."""
        own = {
            "upstream": f"{HOST}:{self.first_broker}",
            "listen": f"{HOST}:{self.port}",
            "broker_ports": f"{self.port + 1}-{self.port + self.brokers}",
            "admin": f"{HOST}:{self.admin}",
        }
        config = self.directory / "weir.toml"
        lines = [f"{key} = {json.dumps(value)}" for key, value in {**own, **self._settings}.items()]
        config.write_text("\n".join(lines))
        command = [*self.prefix, sys.executable, "-m", "weir.cli", "run", "--config", str(config)]
        self._start("weir", command)
        if ready:
            self._until_listens(self.admin)
            self._until_listens(self.port + self.brokers)
            self._until_ready()

    def _start(self, name: str, command: list[str]) -> None:
        before = dict(os.environ)
        os.environ.update({"PYTHONPATH": str(ROOT), **self.environment})
        try:
            self._processes.start(name, command)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def _until_listens(self, port: int) -> None:
        self._until(lambda: socket.create_connection((HOST, port), 1), f"nobody listens at {port}")

    def _until_ready(self) -> None:
        """A Weir that never was ready tells no event when it is not."""
        url = f"http://{HOST}:{self.admin}/readyz"  # `urlopen` raises for 503
        self._until(lambda: urllib.request.urlopen(url, timeout=5), "not ready")

    def _until(self, opens: Callable[[], AbstractContextManager[object]], problem: str) -> None:
        """Try until `opens` raises no OSError. Raises TimeoutError with the problem and Weir's log."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and not self._ended():
            with suppress(OSError), opens():
                return
            time.sleep(0.05)  # between tries
        raise TimeoutError(f"{problem}: {self.log.read_text('utf-8', 'replace')[-2000:]}")

    def _ended(self) -> bool:
        return self._processes.exit_status("weir") is not None

    def client(self, node: int | None = None) -> socket.socket:
        """Connect a client at the port of a broker, or at the bootstrap port."""
        client = socket.create_connection((HOST, self.port if node is None else self.port + 1 + node), 5)
        self._clients.append(client)
        return client

    def send(self, frame: bytes, node: int | None = None) -> socket.socket:
        """Send a request by a new client. A Weir that closes the connection is no error."""
        client = self.client(node)
        with suppress(OSError):
            client.sendall(frame)
        return client

    def try_to(self, step: Callable[[], object]) -> None:
        """Take a step that may fail, because Weir refuses connections."""
        with suppress(OSError):
            step()

    def run(self, command: list[str]) -> None:
        subprocess.run(command, check=False, capture_output=True, timeout=START_S)

    def answers(self) -> bool:
        """Return True if /healthz answers within 2 s."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.admin}/healthz", timeout=2):
                return True
        except OSError:
            return False

    def watch(self, expected: Expected, token: str = "") -> Watch:
        return Watch(self.log, self.admin, expected, token)
