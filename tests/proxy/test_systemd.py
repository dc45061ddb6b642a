"""What systemd is told, by datagrams on a socket that it names."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from tests.kafka.ports import free_range
from weir.proxy.control.systemd import READY, WATCHDOG, Systemd


@pytest.fixture(params=["path", "abstract"])
def systemd_socket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    name = f"{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(30)
        sock.bind(name if request.param == "path" else f"\0{name}")
        yield sock, name if request.param == "path" else f"@{name}"


def test_systemd_gets_the_message_at_its_socket(systemd_socket: tuple[socket.socket, str]) -> None:
    sock, name = systemd_socket
    Systemd.of({"NOTIFY_SOCKET": name}, 7).tell(READY)
    assert sock.recv(100) == b"READY=1"


def test_nothing_is_sent_without_systemd() -> None:
    with capture_logs() as logged:
        Systemd.of({}, 7).tell(READY)
    assert logged == []


def test_a_socket_that_has_gone_is_logged(tmp_path: Path) -> None:
    with capture_logs() as logged:
        Systemd.of({"NOTIFY_SOCKET": f"{tmp_path}/gone"}, 7).tell(READY)
    (line,) = logged
    assert (line["event"], line["state"]) == ("systemd cannot be told", READY)


@pytest.mark.parametrize(
    ("variables", "watchdog_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({"WATCHDOG_USEC": "9" * 400}, 0.0),
        ({"WATCHDOG_USEC": "9" * 5000}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_watchdogs_time_is_read_if_it_is_for_this_process(
    variables: dict[str, str], watchdog_s: float
) -> None:
    assert Systemd.of({"NOTIFY_SOCKET": "/run/x"} | variables, 7).watchdog_s == watchdog_s


def test_an_address_that_is_no_unix_socket_is_ignored() -> None:
    assert Systemd.of({"NOTIFY_SOCKET": "vsock:2:1"}, 7) == Systemd()


@pytest.mark.trio
async def test_the_watchdog_is_told_twice_in_its_time(
    systemd_socket: tuple[socket.socket, str], autojump_clock: MockClock
) -> None:
    sock, name = systemd_socket
    with trio.move_on_after(60.1):
        await Systemd(name, 30.0).keep_alive()
    assert [sock.recv(100) for _ in range(5)] == [WATCHDOG.encode()] * 5  # at 0, 15, 30, 45 and 60 s
    sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        sock.recv(100)


@pytest.mark.trio
async def test_a_watchdog_time_of_a_microsecond_does_not_make_weir_spin(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    told: list[str] = []
    monkeypatch.setattr(Systemd, "tell", lambda _self, state: told.append(state))
    with trio.move_on_after(1.05):
        await Systemd.of({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1"}, 7).keep_alive()
    assert len(told) <= 11


def test_a_process_tells_systemd_that_it_is_ready_lives_and_stops(
    systemd_socket: tuple[socket.socket, str], tmp_path: Path
) -> None:
    sock, name = systemd_socket
    port = free_range(3)
    listen = ("--listen", f"127.0.0.1:{port}", "--broker-ports", f"{port + 1}-{port + 2}")
    arguments = ["run", "--upstream", "127.0.0.1:9", *listen]
    process = subprocess.Popen(
        [sys.executable, "-m", "weir.cli", *arguments],
        env=os.environ | {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "100000"},
        stderr=subprocess.DEVNULL,
    )
    try:
        assert [sock.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
        process.send_signal(signal.SIGTERM)
        while (told := sock.recv(100)) == b"WATCHDOG=1":
            pass
        assert told == b"STOPPING=1"
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
