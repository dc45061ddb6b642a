"""A relay holds the last bytes of a request that begins records of a topic over its rate."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from tests.proxy.exceeded_topics import SMALL_BUFFER, exceeded
from tests.proxy.rigs import Rig
from tests.proxy.wire import FIRST_HOLD_MS, new_connection
from tests.wire.messages import produce_to


@pytest.mark.parametrize("cut", [1, 2, 50, 150])
@pytest.mark.parametrize("acks", [0, 1])
def test_bytes_that_arrive_while_the_end_of_a_request_is_held_wait_for_the_end_of_the_hold(
    new_rig: Callable[..., Rig], cut: int, acks: int
) -> None:
    """A client that sent the last byte by itself went around the rate of a topic."""
    rig = new_rig(connection=new_connection(quotas=exceeded(60_000), buffer_bytes=SMALL_BUFFER))
    asked = produce_to(acks=acks, b=20_000, a=200)
    for now_ms, part in ((1000, asked[:9000]), (1500, asked[9000:-cut])):
        rig.until(now_ms)
        assert rig.pass_on(part, rig.client, rig.broker) == part
    rig.send(rig.client, asked[-cut:])
    rig.client.shutdown(socket.SHUT_WR)
    rig.until(1500 + FIRST_HOLD_MS - 1)
    assert rig.take(rig.broker) == b""
    assert rig.reason is None
    rig.until(1500 + FIRST_HOLD_MS)
    assert rig.take(rig.broker) == asked[-cut:]
