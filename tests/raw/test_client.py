"""The raw client does what its behaviour says."""

from __future__ import annotations

import socket

from tests.raw.client import Behaviour, RawClient, drive
from tests.raw.requests import Outcome, Request


def test_a_persistent_client_connects_again_although_its_login_was_reset() -> None:
    entered = 0

    def enter(_sock: socket.socket) -> None:
        nonlocal entered
        entered += 1
        if entered < 3:
            raise ConnectionResetError

    with socket.create_server(("127.0.0.1", 0)) as server:
        nothing = Request(b"", lambda _frame: Outcome(0, 0))
        manner = Behaviour(persists=True)
        drive([RawClient("a", server.getsockname(), nothing, manner, enter=enter)], 0.2)
    assert entered == 3
