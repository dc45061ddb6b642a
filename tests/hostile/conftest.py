"""Weir in front of stand-in brokers."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.hostile.files import raise_descriptor_limit
from tests.hostile.stage import Stage
from tests.integration.conftest import StartWeir, start_weir
from tests.integration.weir import Weir
from tests.kafka.fixtures import kafka_cluster, topic
from tests.kafka.ports import free_range
from tests.kafka.processes import Processes
from tests.kafka.settings import HOST

__all__ = ["kafka_cluster", "start_weir", "topic"]

ROOT_S = 30


class Brokers:
    """The process of `tests.kfake.process`, with three brokers."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.port = free_range(3)
        command = [sys.executable, "-m", "tests.kfake.process"]
        processes.start("brokers", [*command, "hostile", str(self.port), "3", "0", "1", "2"])
        deadline = time.monotonic() + ROOT_S
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection((HOST, self.port), 1):
                return
            time.sleep(0.02)  # between tries to connect
        raise AssertionError(f"no stand-in brokers: {processes.log('brokers').read_text()}")

    def kill(self) -> None:
        self.processes.kill("brokers")


@contextmanager
def running_brokers(root: Path) -> Iterator[Brokers]:
    """Run three stand-ins for brokers; `root` is the folder of the checkout."""
    raise_descriptor_limit()
    processes = Processes("weir-hostile-")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(root))
            yield Brokers(processes)
    finally:
        processes.close()


@pytest.fixture(scope="module")
def brokers(request: pytest.FixtureRequest) -> Iterator[Brokers]:
    """Stand-ins for brokers that stay up for all tests of a module: processes take longest to start."""
    with running_brokers(request.config.rootpath) as brokers:
        yield brokers


@pytest.fixture
def brokers_to_kill(request: pytest.FixtureRequest) -> Iterator[Brokers]:
    with running_brokers(request.config.rootpath) as brokers:
        yield brokers


@pytest.fixture
def stage(brokers: Brokers, start_weir: StartWeir) -> Stage:
    return Stage(start_weir(f"{HOST}:{brokers.port}"))


@pytest.fixture(scope="module")
def used_weir(brokers: Brokers) -> Iterator[Weir]:
    with Weir(f"{HOST}:{brokers.port}") as weir:
        yield weir


@pytest.fixture
def used_stage(used_weir: Weir) -> Stage:
    """A Weir that earlier tests of the module have used, and that must be as it was before them."""
    return Stage(used_weir)
