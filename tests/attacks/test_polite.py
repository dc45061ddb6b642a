"""The polite client's own figures."""

from __future__ import annotations

import socket
import threading

from tests.attacks.polite import PATIENCE_S, measure


def test_a_connection_that_is_closed_counts_as_failed_and_not_as_a_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close_at_once() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=close_at_once)
        thread.start()
        times = measure(server.getsockname(), "healthz", 0)
        thread.join()
    assert times.failed == 1
    assert times.seconds[-1] < PATIENCE_S / 2
