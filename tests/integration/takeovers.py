"""Weirs that take over from each other, and clients that produce meanwhile and count failures."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer

from tests.integration.admin_port import HOST, Admin
from tests.kafka.ports import free_range
from tests.kafka.processes import Processes

PATIENCE_S = 60.0
BROKERS = 5


class Generations:
    """One address at which one Weir after the other serves; a context manager."""

    def __init__(self, upstream: str, quotas: str = "", options: tuple[str, ...] = ()) -> None:
        """`quotas` is the text of a quota file, `options` further options of `weir run`."""
        self._processes = Processes("weir-takeover-")
        data = Path(self._processes.data)
        (data / "quotas.toml").write_text(quotas, "utf-8")
        port = free_range(1 + BROKERS)
        self.port = port
        self.bootstrap = f"{HOST}:{port}"
        self.admin = Admin()
        self.socket = data / "takeover.sock"
        self._command = [
            *(sys.executable, "-m", "weir.cli", "run", "--upstream", upstream, "--listen", self.bootstrap),
            *("--broker-ports", f"{port + 1}-{port + BROKERS}", "--quotas", str(data / "quotas.toml")),
            *("--set", f"takeover_socket={self.socket}", "--log-level", "debug"),
            *self.admin.options,
            *options,
        ]
        self.number = 0

    def log(self, number: int) -> str:
        return self._processes.log(str(number)).read_text("utf-8", "replace")

    def pid(self, number: int) -> int:
        return self._processes.pid(str(number))

    def start(self) -> int:
        self.wait_for(self.start_only(), '"event": "quotas in force"')
        return self.number

    def start_only(self) -> int:
        self.number += 1
        self._processes.start(str(self.number), self._command)
        return self.number

    def start_with(self, *options: str) -> int:
        """Start the next Weir with further options, wait until it has ended, and return its exit code."""
        self.number += 1
        self._processes.start(str(self.number), [*self._command, *options])
        return self.ended(self.number)

    def stop(self) -> int:
        os.kill(self.pid(self.number), signal.SIGTERM)
        return self.ended(self.number)

    def ended(self, number: int) -> int:
        return self._processes.wait(str(number), PATIENCE_S)

    def wait_for(self, number: int, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.log(number):
            if not self._processes.running(str(number)):
                raise AssertionError(f"Weir {number} has ended: {self.log(number)[-3000:]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"Weir {number} has not logged {text}: {self.log(number)[-3000:]}")
            time.sleep(0.02)  # between looks; nothing is decided by it

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self.number:
            sys.stderr.write(f"the end of the last Weir's log:\n{self.log(self.number)[-4000:]}\n")
        self._processes.close()


@dataclass
class Tally:
    delivered: int = 0
    failures: list[str] = field(default_factory=list)
    longest_s: float = 0.0
    """Longest time from sending a record to its acknowledgement."""

    def note(self, sent_s: float, error: object = None) -> None:
        self.longest_s = max(self.longest_s, time.monotonic() - sent_s)
        if error is None:
            self.delivered += 1
        else:
            self.failures.append(str(error))


class RdkafkaLoad:
    """librdkafka: 100 records/s over all partitions of a topic."""

    def __init__(self, bootstrap: str, topic: str, **config: Any) -> None:
        self.tally = Tally()
        self._topic = topic
        self._config = {"bootstrap.servers": bootstrap, "linger.ms": 0, "client.id": "rd", **config}

    def run(self, stop: threading.Event) -> None:
        """Produce until `stop` is set, then wait for all acknowledgements."""
        producer = Producer(self._config)
        while not stop.is_set():
            producer.produce(self._topic, b"x" * 100, on_delivery=self._noting(time.monotonic()))
            producer.poll(0)
            stop.wait(0.01)
        left = producer.flush(PATIENCE_S)
        self.tally.failures += ["not acknowledged"] * left

    def _noting(self, sent_s: float) -> Callable[[object, object], None]:
        return lambda error, _message: self.tally.note(sent_s, error)


class Running:
    def __init__(self, *loads: RdkafkaLoad) -> None:
        self.loads = loads
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=load.run, args=(self._stop,)) for load in loads]

    def wait_for_more(self, count: int = 20) -> None:
        goals = [load.tally.delivered + count for load in self.loads]
        deadline = time.monotonic() + PATIENCE_S
        while any(load.tally.delivered < goal for load, goal in zip(self.loads, goals, strict=True)):
            if time.monotonic() > deadline:
                raise AssertionError(f"no progress: {[load.tally for load in self.loads]}")
            time.sleep(0.01)  # between looks; nothing is decided by it

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)
