"""A broker dies and comes back: its clients go on through the same Weir, and nothing is lost or doubled."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.clients import create_topic
from tests.clients.pairs import VERSIONS
from tests.integration.aftermath import Aftermath
from tests.integration.conftest import StartWeir
from tests.integration.traffic import (
    AT_LEAST_ONCE,
    ONCE,
    PyReceiver,
    PySender,
    RdReceiver,
    RdSender,
    Receiver,
    Sender,
    assert_all_arrived,
    flow,
    settle,
)
from tests.integration.weir_log import GENEROUS
from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker]

PARTITIONS = 2


@pytest.fixture(autouse=True)
def close_refused_sockets() -> Iterator[None]:
    """kafka-python does not close sockets whose connection was refused; no later test must be blamed."""
    yield
    for found in gc.get_objects():
        if isinstance(found, socket.socket) and found.fileno() >= 0 and is_refused(found):
            found.close()


def is_refused(sock: socket.socket) -> bool:
    if sock.family != socket.AF_INET or sock.type != socket.SOCK_STREAM:
        return False
    try:
        sock.getpeername()
    except OSError:
        return not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return False


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("version", VERSIONS)
def test_clients_lose_nothing_when_their_broker_is_killed_and_restarted(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = fresh_cluster(version)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    aftermath = Aftermath(weir, node_ids=[0])
    create_topic(weir.bootstrap, topic, PARTITIONS)
    once = version != "0.10.2.2"
    place = weir.bootstrap, topic, PARTITIONS
    senders: list[Sender] = [RdSender(*place, ONCE if once else AT_LEAST_ONCE)]
    if version == "3.9.1":
        senders.append(PySender(*place))
    alone, member = RdReceiver(*place), RdReceiver(*place, group=f"{topic}-rd", name="rd member")
    audiences: list[list[Receiver]] = [[alone], [member], [PyReceiver(weir.bootstrap, topic, f"{topic}-py")]]
    with ExitStack() as stack:
        for talker in (*senders, *(receiver for some in audiences for receiver in some)):
            stack.enter_context(talker)
        flow(senders, *audiences)
        cluster.kill(0)
        cluster.restart(0)
        flow(senders, *audiences)
        settle(senders, *audiences)
    assert_all_arrived(senders, [alone], once=once)
    for members in audiences[1:]:
        assert_all_arrived(senders, members, once=once, again=True)
    aftermath.check()
    assert "broker_closed" in aftermath.reasons
