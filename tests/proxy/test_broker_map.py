"""The file with the brokers' addresses: what is written, what is read back, what is ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from tests.proxy.state_files import keep_once
from weir.proxy.addresses import Address, AddressBook, PortRange
from weir.proxy.control.cluster.broker_map import BROKERS_MAX, BrokerMap
from weir.proxy.control.state_directory import StateDirectory

UPSTREAM = (Address("kafka-1", 9092), Address("kafka-2", 9092))
NODES = {7: Address("kafka-7.example", 9092), 3: Address("2001:db8::3", 9093)}


def map_of(
    directory: Path, nodes: Mapping[int, Address] | None = None, upstream: Sequence[Address] = UPSTREAM
) -> BrokerMap:
    book = AddressBook(PortRange(9100, 9100 + BROKERS_MAX), lambda _node_id, _port: None)
    for node_id, address in (nodes or {}).items():
        book.observe(node_id, address)
    return BrokerMap(StateDirectory(directory), upstream, book)


def test_the_broker_map_reads_back_in_the_order_of_learning(tmp_path: Path) -> None:
    trio.run(keep_once, tmp_path, map_of(tmp_path, NODES))
    assert list(map_of(tmp_path).read().items()) == list(NODES.items())


def test_a_broker_map_written_by_hand_needs_only_brokers(tmp_path: Path) -> None:
    path = tmp_path / "brokers.json"
    path.write_text('{"brokers": [{"node_id": 1, "host": "kafka-1", "port": 9092}]}')
    assert map_of(tmp_path).read() == {1: Address("kafka-1", 9092)}


def test_a_broker_map_of_another_upstream_is_refused_and_of_an_overlapping_one_accepted(
    tmp_path: Path,
) -> None:
    trio.run(keep_once, tmp_path, map_of(tmp_path, NODES))
    assert map_of(tmp_path, upstream=[Address("kafka-9", 9092), UPSTREAM[1]]).read() == NODES
    with capture_logs() as (lines):
        assert map_of(tmp_path, upstream=[Address("kafka-9", 9092)]).read() == {}
    expected = "the map of another cluster, whose upstream is kafka-1:9092, kafka-2:9092"
    assert [line["reason"] for line in lines] == [expected]


def test_a_broker_map_keeps_the_brokers_learned_last_if_they_are_too_many(tmp_path: Path) -> None:
    nodes = {node_id: Address("a", 1 + node_id) for node_id in range(BROKERS_MAX + 1)}
    trio.run(keep_once, tmp_path, map_of(tmp_path, nodes))
    assert list(map_of(tmp_path).read()) == list(range(1, BROKERS_MAX + 1))


@pytest.mark.trio
async def test_changes_of_the_address_book_are_written_and_nothing_else(tmp_path: Path) -> None:
    path, kept = tmp_path / "brokers.json", map_of(tmp_path)
    await keep_once(tmp_path, kept)
    assert not path.exists(), "an empty map would replace a good one"
    for node_id, address in [(1, Address("a", 1)), (2, Address("b", 1)), (1, Address("c", 1))]:
        kept._address_book.observe(node_id, address)
        await keep_once(tmp_path, kept)
        assert map_of(tmp_path).read() == kept._address_book.nodes
    before = path.stat()
    kept._address_book.observe(1, Address("c", 1))
    await keep_once(tmp_path, kept)
    assert path.stat() == before
