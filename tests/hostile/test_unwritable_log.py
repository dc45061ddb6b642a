"""A log that cannot be written ends no connection, delays none, and is told once it can be written again."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.hostile.conftest import Brokers
from tests.hostile.log_process import LoggingWeir
from tests.hostile.stage import PING, PONG, ask, until

CLIENTS = 100
"""Their log lines are longer than `PIPE_BYTES` and `FILE_BYTES`."""
PIPE_BYTES = 4096
FILE_BYTES = 4096

pytestmark = [pytest.mark.slow]


def test_clients_are_served_while_the_log_is_a_pipe_without_a_reader(brokers: Brokers) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with LoggingWeir(brokers, writer) as weir, weir.connect() as neighbour:
        os.close(writer)
        weir.cause_log_lines(CLIENTS)
        assert ask(neighbour, PING) == PONG
        until(lambda: weir.lines_lost() >= CLIENTS, lambda: f"lost lines are counted: {weir.lines_lost()}")
        neighbour.close()
        assert weir.stop() == 0


def test_clients_are_served_while_nobody_reads_the_pipe_of_the_log(brokers: Brokers) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    with LoggingWeir(brokers, writer) as weir, weir.connect() as neighbour:
        os.close(writer)
        weir.cause_log_lines(CLIENTS)
        assert ask(neighbour, PING) == PONG
        with os.fdopen(reader, "rb") as log:  # read again: every line is there, whole and in order
            ended = [json.loads(line) for line in iter_until(log, CLIENTS)]
        assert [entry["level"] for entry in ended] == ["debug"] * CLIENTS
        times = [entry["timestamp"] for entry in ended]
        assert times == sorted(times)


def iter_until(log: IO[bytes], count: int) -> list[bytes]:
    found: list[bytes] = []
    for line in log:
        if b'"connection closed"' in line:
            found.append(line)
        if len(found) == count:
            break
    return found


def test_weir_stops_in_time_while_nobody_reads_the_pipe_of_the_log(brokers: Brokers) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    with LoggingWeir(brokers, writer) as weir:
        os.close(writer)
        weir.cause_log_lines(CLIENTS)
        assert weir.stopped_within_s() < 10
    os.close(reader)


def test_clients_are_served_while_the_file_of_the_log_cannot_grow(brokers: Brokers, tmp_path: Path) -> None:
    file = tmp_path / "weir.log"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))

    with file.open("ab") as log, LoggingWeir(brokers, log, limit) as weir, weir.connect() as neighbour:
        weir.cause_log_lines(CLIENTS)
        assert ask(neighbour, PING) == PONG
        until(lambda: weir.lines_lost() > 0, lambda: "lost lines are counted")
        assert file.stat().st_size <= FILE_BYTES
        os.truncate(file, 0)  # as when a disk has room again
        weir.cause_log_lines(1)
        until(lambda: "log lines lost" in file.read_text(), lambda: f"the loss is told: {file.read_text()}")
        told = [json.loads(line) for line in file.read_text().splitlines() if "log lines lost" in line]
        assert [entry["level"] for entry in told] == ["error"]
        # A process tells its losses in the log at once, and to the metrics a moment later.
        until(lambda: weir.lines_lost() >= told[0]["count"] > 0, lambda: f"{told} is counted")
        neighbour.close()
        assert weir.stop() == 0


def test_a_configuration_error_is_told_by_the_exit_status_if_nobody_reads_the_log() -> None:
    command = [sys.executable, "-m", "weir.cli", "run"]
    reader, writer = os.pipe()
    os.close(reader)
    assert subprocess.run(command, stderr=writer, timeout=60, check=False).returncode == 2
    os.close(writer)


def test_a_configuration_error_is_written_before_weir_exits() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "weir.cli", "run"], capture_output=True, timeout=60, check=False, text=True
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("weir: no upstream")
