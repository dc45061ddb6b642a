"""Brokers without a listener: the log, /readyz and the end of it."""

from __future__ import annotations

import socket

import pytest
import trio
from structlog.testing import capture_logs

from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST, Cluster
from tests.kfake.in_trio import serve
from tests.proxy.stage import PING, PONG, Play, Stage, until
from tests.scripted import staged
from weir.proxy.addresses import Address, AddressBook, PortRange, ServerNames
from weir.proxy.admin.readiness import Readiness
from weir.proxy.left_out import BROKERS_MAX, FORGET_S, LeftOutBrokers

FAR = Address("kafka-1000", 9092)
REMOVED = "broker removed from responses: clients cannot reach it"
OVER = "broker no longer removed from responses"


class Time:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def book(clock: Time, ports: PortRange | ServerNames | None = None) -> AddressBook:
    made = AddressBook(ports or PortRange(9100, 9102), lambda _node_id, _port: None)
    made.left_out = LeftOutBrokers(clock)
    return made


def test_a_left_out_broker_is_an_error_at_once_and_each_minute_with_the_settings_to_change() -> None:
    clock = Time()
    found = book(clock)
    with capture_logs() as logged:
        for clock.now_s in (0.0, 1.0, 59.0, 61.0):
            assert found.observe(5, FAR) is None
    said = [(line["event"], line["log_level"], line["node_id"]) for line in logged]
    assert said == [(REMOVED, "error", 5)] * 2
    assert "@5" in logged[0]["remedy"]
    assert found.left_out.node_ids() == [5]


def test_a_left_out_broker_that_leaves_the_cluster_is_the_end_of_the_outage() -> None:
    found = book(Time())
    found.observe(5, FAR)
    found.left_out.keep([0, 5])
    assert found.left_out.node_ids() == [5]
    with capture_logs() as logged:
        found.left_out.keep([0])
    assert found.left_out.node_ids() == []
    assert [(line["event"], line["log_level"]) for line in logged] == [(OVER, "info")]


def test_a_left_out_broker_that_no_response_names_any_more_is_forgotten() -> None:
    clock = Time()
    found = book(clock)
    found.observe(5, FAR)
    clock.now_s = FORGET_S
    assert found.left_out.node_ids() == [5]
    clock.now_s += 1
    assert found.left_out.node_ids() == []


def test_a_broker_whose_port_is_free_again_is_no_longer_left_out() -> None:
    taken = [True]

    def open_listener(_node_id: int, _port: int) -> None:
        if taken:
            raise OSError(98, "Address already in use")

    found = AddressBook(PortRange(9100, 9102), open_listener)
    with capture_logs() as logged:
        assert found.observe(1, FAR) is None
        assert found.left_out.node_ids() == [1]
        taken.clear()
        assert found.observe(1, FAR) == 9101
    assert found.left_out.node_ids() == []
    said = [line for line in logged if line["event"] in (REMOVED, OVER)]
    assert [line["event"] for line in said] == [REMOVED, OVER]
    assert said[0]["reason"] == "cannot listen on port 9101: address already in use"


def test_a_negative_node_id_which_stands_for_no_broker_is_not_left_out() -> None:
    for ports in (PortRange(9100, 9102), ServerNames("kafka.test", 9092)):
        found = book(Time(), ports)
        assert found.observe(-1, Address("", -1)) is None
        assert found.left_out.node_ids() == []


def test_a_broker_that_names_any_number_of_node_ids_has_a_bounded_number_left_out() -> None:
    found = book(Time())
    with capture_logs() as logged:
        for node_id in range(1000, 1000 + 2 * BROKERS_MAX):
            found.observe(node_id, FAR)
    assert len(found.left_out.node_ids()) == len(logged) == BROKERS_MAX


@staged(refresh_s=0.02)
async def test_weir_is_not_ready_while_a_broker_of_the_cluster_is_left_out(stage: Stage) -> None:
    listening = trio.Event()
    listening.set()
    readiness = Readiness(stage.server, listening)
    assert await readiness.problem() is None
    stage.cluster.nodes[77] = Address(HOST, 1)
    left_out = stage.server.address_book.left_out
    await until(lambda: left_out.node_ids() == [77])
    assert await readiness.problem() == "no listener for brokers 77, see the log for the remedy"
    del stage.cluster.nodes[77]
    await until(lambda: left_out.node_ids() == [])
    assert await readiness.problem() is None


def test_brokers_of_two_ranges_of_node_ids_are_reached_while_weir_runs(play: Play) -> None:
    first = free_range(8)

    async def script(stage: Stage) -> None:
        assert await stage.told() == {0: Address(HOST, first + 1)}
        await stage.nursery.start(serve, stage.cluster, 1000)
        assert await stage.told() == {0: Address(HOST, first + 1), 1000: Address(HOST, first + 4)}
        client = await stage.connect(3)  # the port of node 1000
        assert await client.ask(PING) == PONG
        assert stage.cluster.asked[-1] == (1000, PING)

    ports = f"{first + 1}-{first + 3}, {first + 4}-{first + 6}@1000"
    play(script, first_port=first, broker_ports=ports)


@pytest.mark.parametrize("shy", [False, True])
def test_the_port_of_a_broker_that_joins_is_opened_once_it_is_free(play: Play, shy: bool) -> None:
    """Also if only clients' responses tell the brokers, whose bytes are the same each time."""
    first = free_range(12)

    async def script(stage: Stage) -> None:
        left_out = stage.server.address_book.left_out
        with socket.create_server((HOST, first + 3)):
            await stage.nursery.start(serve, stage.cluster, 2)
            assert set(await stage.told()) == {0}
            assert left_out.node_ids() == [2]
        while set(await stage.told()) != {0, 2}:
            await trio.lowlevel.checkpoint()
        assert left_out.node_ids() == []

    play(script, first_port=first, refresh_s=0.02, cluster=Cluster(shy=shy))
