"""Take-over: what the running and the new Weir say to each other, and who serves at each moment."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
import trio
from structlog.testing import capture_logs

from tests.proxy.rigs import open_descriptors
from weir.proxy.addresses import Address
from weir.proxy.config.settings import ConfigError
from weir.proxy.server.takeover import giver as giving
from weir.proxy.server.takeover import taker as taking
from weir.proxy.server.takeover.giver import Estate, Giver
from weir.proxy.server.takeover.messages import (
    CarriedUnits,
    Hello,
    Message,
    Sockets,
    TakeoverError,
    TakeoverLink,
    Word,
    is_trusted,
)
from weir.quotas.handover import UsedUnits
from weir.quotas.table.entities import Tags

pytestmark = [pytest.mark.trio]

BROKERS = {n: Address(f"kafka-{n}", 9092) for n in range(450)}
USED = [UsedUnits((1, "produce", False), Tags("u", str(n)), [(5, 7.5)], 3) for n in range(120)]


@dataclass
class Running:
    sockets: list[socket.socket]
    said: list[str] = field(default_factory=list)

    def estate(self) -> Estate:
        return Estate(
            sockets=lambda: self.sockets,
            brokers=lambda: BROKERS,
            used=self._used,
            pause=lambda: self.said.append("pause"),
            flush=self._flush,
            resume=lambda: self.said.append("resume"),
            leave=lambda: self.said.append("leave"),
        )

    async def _flush(self) -> None:
        self.said.append("flush")

    def _used(self) -> Iterator[UsedUnits | None]:
        for each in USED:
            yield each
            yield None


@asynccontextmanager
async def running(path: Path, count: int = 3) -> AsyncIterator[Running]:
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    weir = Running(listening)
    giver = Giver(path, weir.estate())
    try:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(giver.serve, lambda: None)
                yield weir
                nursery.cancel_scope.cancel()
    finally:
        giver.close()
        for sock in listening:
            sock.close()


async def connect(path: Path) -> TakeoverLink:
    sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    await sock.connect(str(path))
    return TakeoverLink(sock)


async def hear(link: TakeoverLink, word: str) -> list[Message]:
    heard: list[Message] = []
    while not heard or heard[-1] != Word(word):  # type: ignore[arg-type]  # one of its words
        message, received = await link.receive()
        heard.append(message)
        for sock in received:
            sock.close()
    return heard


async def until_said(weir: Running, word: str) -> None:
    while word not in weir.said:  # noqa: ASYNC110  # lists have no events
        await trio.sleep(0.001)


async def test_a_takeover_passes_all_sockets_brokers_and_usage(tmp_path: Path) -> None:
    path = tmp_path / "takeover.sock"
    async with running(path, count=250) as weir:
        taker = await taking.begin(path)
        assert taker is not None
        try:
            ports = [sock.getsockname() for sock in taker.sockets]
            assert ports == [sock.getsockname() for sock in weir.sockets]
            assert taker.brokers == BROKERS
            assert weir.said == []
            taken: list[UsedUnits] = []
            await taker.finish(taken.extend)
            assert taken == USED
            await until_said(weir, "leave")
            assert weir.said == ["pause", "flush", "leave"]
        finally:
            for sock in taker.sockets:
                sock.close()


async def test_a_new_weir_that_ends_while_it_starts_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "takeover.sock"
    with capture_logs() as logged:
        async with running(path) as weir:
            link = await connect(path)
            await link.send(Hello())
            await hear(link, "sent")
            link.close()
            taker = await taking.begin(path)
            assert taker is not None
            assert weir.said == []
            await taker.finish(lambda _taken: None)
            await until_said(weir, "leave")
            for sock in taker.sockets:
                sock.close()
    assert [line["event"] for line in logged].count("take-over abandoned, serving on") == 1


async def test_clients_are_accepted_again_if_the_new_weir_ends_before_it_takes(tmp_path: Path) -> None:
    path = tmp_path / "takeover.sock"
    async with running(path) as weir:
        link = await connect(path)
        await link.send(Hello())
        await hear(link, "sent")
        await link.send(Word("ready"))
        heard = await hear(link, "paused")
        assert sum(len(message.used) for message in heard if isinstance(message, CarriedUnits)) == len(USED)
        assert weir.said == ["pause", "flush"]
        link.close()
        await until_said(weir, "resume")
        assert weir.said == ["pause", "flush", "resume"]


async def test_a_new_weir_that_is_silent_too_long_is_told_that_the_listeners_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(giving, "PATIENCE_S", 0.05)
    path = tmp_path / "takeover.sock"
    async with running(path) as weir:
        link = await connect(path)
        await link.send(Hello())
        await hear(link, "sent")
        await link.send(Word("ready"))
        await hear(link, "paused")
        await hear(link, "kept")
        assert weir.said == ["pause", "flush", "resume"]
        link.close()


@pytest.mark.parametrize(
    "said",
    [
        b"\xff" * 100,
        b'{"type":"Word","word":"\xff"}',
        b'{"type":"Hello","x":' + b"[" * 100_000,
        b'{"type":"Hello","protocol":' + b"9" * 5000 + b"}",
    ],
    ids=["no JSON", "no UTF-8", "deep", "a large number"],
)
async def test_bytes_that_are_no_message_end_the_takeover(tmp_path: Path, said: bytes) -> None:
    path = tmp_path / "takeover.sock"
    async with running(path) as weir:
        sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        await sock.connect(str(path))
        await sock.send(said)
        await hear(TakeoverLink(sock), "kept")
        assert weir.said == []
        sock.close()


async def test_received_descriptors_that_are_no_sockets_are_closed(tmp_path: Path) -> None:
    path = tmp_path / "takeover.sock"
    reading, writing = os.pipe()
    try:
        async with running(path) as weir:
            link = await connect(path)
            await link.send(Hello(99), [reading, writing])
            await hear(link, "kept")
            assert weir.said == []
            link.close()
            os.close(writing)
            writing = -1
            assert os.read(reading, 1) == b"", "Weir has kept the pipe open"
    finally:
        for fd in (reading, writing):
            if fd >= 0:
                os.close(fd)


async def test_a_process_of_another_user_gives_no_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "takeover.sock"
    async with running(path):
        monkeypatch.setattr(taking, "is_trusted", lambda _sock: False)
        with pytest.raises(ConfigError, match="a process of another user listens there"):
            await taking.begin(path)


@pytest.mark.parametrize(("user", "trusted"), [(0, True), (1000, True), (1001, False)])
async def test_only_processes_of_this_user_and_of_root_are_trusted(
    user: int, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other:
        """A socket whose other end is a process of `user`."""

        def getsockopt(self, *_option: int) -> bytes:
            return struct.pack("iII", 7, user, 100)

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert is_trusted(cast("trio.socket.SocketType", Other())) is trusted


async def test_a_takeover_socket_never_replaces_another_file(tmp_path: Path) -> None:
    path = tmp_path / "weir.toml"
    path.write_text("kept")
    with pytest.raises(ConfigError, match="a file that is no socket is there"):
        Giver(path, Running([]).estate())
    assert path.read_text() == "kept"


async def test_another_users_process_gets_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving, "is_trusted", lambda _sock: False)
    path = tmp_path / "takeover.sock"
    async with running(path) as weir:
        with capture_logs() as lines, pytest.raises(ConfigError, match="the running Weir does not hand over"):
            await taking.begin(path)
        assert weir.said == []
    assert [line["user"] for line in lines if line["event"].startswith("take-over refused")] == [os.geteuid()]


async def test_the_takeover_socket_is_its_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "takeover.sock"
    async with running(path):
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


async def test_a_weir_leaves_the_takeover_socket_of_its_successor(tmp_path: Path) -> None:
    path = tmp_path / "takeover.sock"
    async with running(path):
        async with running(path):
            inode = path.stat().st_ino
        assert not path.exists()
        path.touch()
    assert path.exists()
    assert inode


async def play_running(path: Path, *words: Word, task_status: trio.TaskStatus[None]) -> None:
    """A running Weir that sends these messages after the sockets, each when asked, then ends."""
    listening = trio.socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    await listening.bind(str(path))
    listening.listen(1)
    task_status.started()
    sock, _address = await listening.accept()
    link = TakeoverLink(sock)
    await link.receive()
    await link.send(Word("sent"))
    for word in words:
        await link.receive()
        await link.send(word)
    link.close()
    listening.close()


@asynccontextmanager
async def taking_from(path: Path, *words: Word) -> AsyncIterator[taking.Taker]:
    """Yield a new Weir that has begun to take over from one that says these words (`play_running`)."""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: play_running(path, *words, task_status=task_status))
            taker = await taking.begin(path)
            assert taker is not None
            yield taker


@pytest.mark.parametrize("words", [[], [Word("paused")]])
async def test_the_listeners_of_a_weir_that_is_killed_meanwhile_are_taken(
    tmp_path: Path, words: list[Word]
) -> None:
    async with taking_from(tmp_path / "takeover.sock", *words) as taker:
        with capture_logs() as logged:
            await taker.finish(lambda _taken: None)
    assert "the former Weir has ended, its listeners are taken" in [line["event"] for line in logged]


async def test_a_new_weir_ends_if_the_running_one_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "PATIENCE_S", 0.05)
    path = tmp_path / "takeover.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hung:
        hung.bind(str(path))
        hung.listen(1)
        with pytest.raises(ConfigError, match=r"no message within 0\.05 s"):
            await taking.begin(path)


async def test_descriptors_of_an_unexpected_message_are_closed(tmp_path: Path) -> None:
    path = tmp_path / "takeover.sock"
    async with running(path):
        before = open_descriptors()
        link = await connect(path)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            await link.send(Sockets(), [listening.fileno()])
            await hear(link, "kept")
        link.close()
        with pytest.raises(TakeoverError):
            await link.send(Word("take"))
        assert len(open_descriptors() - before) <= 1, "the giver may not have closed its end"
