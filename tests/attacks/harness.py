"""Runs an attack: `weir`, two stub brokers, attackers at the one, the polite client at the other."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.attacks.attacks import Attack
from tests.attacks.polite import Times, measure
from tests.attacks.weir import Turns, TurnsFile
from tests.hostile.files import raise_descriptor_limit, resident_bytes
from tests.integration.weir import Weir
from tests.kafka.ports import free_range
from tests.kafka.processes import Processes
from tests.kafka.settings import HOST
from tests.proxy.certificates import write_pair

ROOT: Final = Path(__file__).parents[2]
ATTACKED, POLITE = NODES = (0, 1)
"""Node ids: the attackers' broker, and the polite client's, which is a process of its own."""
START_S: Final = 30.0
WARM_S: Final = 1.0
"""The attackers' first second is not measured: 2,000 connections take so long to make."""


class Result(NamedTuple):
    attack: Attack
    quiet: Times
    attacked: Times
    turns: Turns
    """Turns under attack."""
    grown_bytes: int
    """Memory that Weir has gained, at the end of the attack."""

    @property
    def later_ms(self) -> float:
        """By how much the polite client's p99 is above its quiet value (ms)."""
        return self.attacked.ms(0.99) - self.quiet.ms(0.99)


class WatchedWeir(Weir):
    """`tests.attacks.weir` in front of the stub brokers."""

    def __init__(self, upstream: str, attack: Attack, directory: Path, admin: int) -> None:
        """Choose ports and options; `directory` is for files of the test."""
        options = [*attack.options, "--admin", f"{HOST}:{admin}", "--log-level", "error"]
        if attack.tls:
            cert, key = write_pair(directory, HOST)
            options += ["--set", f"tls_cert={cert},{key}"]
        super().__init__(upstream, attack.quotas, options=tuple(options))
        self._command[:3] = [sys.executable, "-m", "tests.attacks.weir"]
        self.admin = admin

    def start(self) -> WatchedWeir:
        self._processes.start("weir", self._command)
        _until_listens(self.admin, self._processes, "weir")
        _until_listens(self.port + 1 + POLITE, self._processes, "weir")
        return self


def run(attack: Attack, seconds: float, quiet_s: float) -> Result:
    """Measure the polite client for `quiet_s` without attackers, then for `seconds` beside them."""
    raise_descriptor_limit()
    with ExitStack() as stack:
        processes = Processes("weir-attack-")
        stack.callback(processes.close)
        turns_path = processes.directory / "turns"
        turns = TurnsFile(turns_path)
        stack.enter_context(_environment(PYTHONPATH=str(ROOT), WEIR_TURNS=str(turns_path)))
        upstream = _start_brokers(processes)
        weir = stack.enter_context(
            WatchedWeir(f"{HOST}:{upstream}", attack, processes.directory, free_range(1))
        )
        weir_port = weir.port + 1
        ports = {"healthz": (weir.admin, weir.admin)}.get(
            attack.polite, (weir_port + ATTACKED, weir_port + POLITE)
        )
        _until_turns(turns, 1)  # the supervisor's sockets listen before its worker accepts
        quiet = measure((HOST, ports[1]), attack.polite, quiet_s)
        before = resident_bytes(weir.pid)
        processes.start(
            "attacker", [sys.executable, "-m", "tests.attacks.attacker", attack.name, HOST, str(ports[0])]
        )
        _until_attacked(turns)
        attacked = measure((HOST, ports[1]), attack.polite, seconds)
        return Result(attack, quiet, attacked, turns.read(), resident_bytes(weir.pid) - before)


def _start_brokers(processes: Processes) -> int:
    port = free_range(len(NODES))
    for node in NODES:
        command = [sys.executable, "-m", "tests.kfake.process", "sound"]
        processes.start(f"broker-{node}", [*command, str(port), str(len(NODES)), str(node)])
    for node in NODES:
        _until_listens(port + node, processes, f"broker-{node}")
    return port


def _until_attacked(turns: TurnsFile) -> None:
    """Wait until the attackers' process has made its frames and connections, then begin to measure."""
    _until_turns(turns, turns.read().number + 20)
    time.sleep(WARM_S)  # see WARM_S
    turns.reset()


def _until_turns(turns: TurnsFile, number: int) -> None:
    deadline = time.monotonic() + START_S
    while turns.read().number < number:
        assert time.monotonic() < deadline, "the worker has no turns, or they are not written to the file"
        time.sleep(0.05)  # between looks; nothing is decided by it


def _until_listens(port: int, processes: Processes, name: str) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and processes.running(name):
        with suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(0.05)  # between tries to connect
    raise RuntimeError(f"{name} does not listen: {processes.log(name).read_text('utf-8', 'replace')[-2000:]}")


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
