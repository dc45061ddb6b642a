"""`weir top` and the real admin endpoint: its parameters are the API's, and its terminal is restored."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest
import trio

from tests.admin.fake_api import FakeApi, entity, served
from tests.cli.admin_pages import asked
from tests.proxy.metrics_page import registry_of, server
from tests.proxy.supervised import NoWorkers
from tests.proxy.throttled_replicas import NOW_MS
from weir.cli.admin_endpoint import EndpointAccess, admin_address
from weir.cli.top.command import asking
from weir.cli.top.readings import SORTS, TopReading, View, Wanted, read, read_all
from weir.proxy.admin.api.operation import state_of
from weir.proxy.admin.endpoint import application
from weir.proxy.admin.metrics import Sources
from weir.proxy.admin.readiness import Readiness
from weir.proxy.config.config import Settings
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.server.server import Server

__all__ = ["server"]  # a fixture

WANTED = [Wanted(view, sort, "x", limit=7) for view in View for sort in SORTS[view] or ("",)]
OF_ENTITY = entity("e", client_id="etl")


@pytest.mark.parametrize(
    "wanted",
    [*WANTED, Wanted(shadow=True), Wanted(entity=OF_ENTITY)],
    ids=lambda wanted: f"{wanted.view}-{wanted.sort}-{wanted.shadow}-{wanted.entity is not None}",
)
def test_the_api_takes_every_question(server: Server, wanted: Wanted) -> None:
    found = answered(server, wanted)
    lists = (found.entities, found.connections, found.brokers)
    assert [one is not None for one in lists] == [wanted.view is view for view in View]
    assert (found.connections_of_entity is not None) == (wanted.entity is not None)


def answered(server: Server, wanted: Wanted | None) -> TopReading:
    """Return the answer of a real endpoint; all lists if `wanted` is None."""
    sources = Sources(server, NoWorkers(), registry_of(), StoreHealth(lambda: 0.0), lambda: NOW_MS)

    def ask(admin: str) -> TopReading:
        address = admin_address(admin, Settings())
        assert address is not None
        asks = asking(address, EndpointAccess())
        return read_all(asks, Wanted()) if wanted is None else read(asks, wanted)

    return asked(application(state_of(sources, Readiness(server, trio.Event()))), ask)


@pytest.mark.slow
@pytest.mark.parametrize(("key", "code"), [(b"q", 0), (b"\x03", 130)])
def test_the_program_leaves_a_real_terminal_as_it_was(key: bytes, code: int) -> None:
    pytest.importorskip("textual")
    with served(FakeApi()) as url:
        admin = url.removeprefix("http://")
        screen, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        before = termios.tcgetattr(theirs)
        process = subprocess.Popen(
            [sys.executable, "-m", "weir.cli", "top", "--admin", admin],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "PYTHONPATH": ".", "TERM": "xterm-256color"},
        )
        with open(screen, "rb+", buffering=0) as ours:  # noqa: PTH123  # a descriptor
            text = b""
            while b"user=carol" not in text:
                text += ours.read(65536)
            ours.write(key)
            while b"\x1b[?1049l" not in text:  # the usual screen again
                text += ours.read(65536)
            assert process.wait(60) == code
            assert termios.tcgetattr(theirs) == before
        os.close(theirs)
