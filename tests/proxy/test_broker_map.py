"""The file with the brokers' addresses: what is written, what is read back, what is ignored."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from weir.proxy.addresses import Address, AddressBook, PortRange
from weir.proxy.config.config import load
from weir.proxy.control.cluster import broker_map
from weir.proxy.control.cluster.broker_map import BrokerMap, BrokerMapError, path_of, read, write

UPSTREAM = (Address("kafka-1", 9092), Address("kafka-2", 9092))
NODES = {7: Address("kafka-7.example", 9092), 3: Address("2001:db8::3", 9093)}


def book() -> AddressBook:
    return AddressBook(PortRange(9100, 9199), lambda _node_id, _port: None)


def test_the_broker_map_reads_back_in_the_order_of_learning(tmp_path: Path) -> None:
    path = tmp_path / "brokers.json"
    write(path, UPSTREAM, NODES)
    assert list(read(path, UPSTREAM).items()) == list(NODES.items())


def test_a_broker_map_written_by_hand_needs_only_brokers(tmp_path: Path) -> None:
    path = tmp_path / "brokers.json"
    path.write_text('{"brokers": [{"node_id": 1, "host": "kafka-1", "port": 9092}]}')
    assert read(path, UPSTREAM) == {1: Address("kafka-1", 9092)}


def test_a_missing_broker_map_has_no_brokers(tmp_path: Path) -> None:
    assert read(tmp_path / "none.json", UPSTREAM) == {}


def test_a_broker_map_of_another_upstream_is_refused_and_of_an_overlapping_one_accepted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "brokers.json"
    write(path, UPSTREAM, NODES)
    assert read(path, [Address("kafka-9", 9092), UPSTREAM[1]]) == NODES
    with pytest.raises(BrokerMapError, match="another cluster, whose upstream is kafka-1:9092, kafka-2:9092"):
        read(path, [Address("kafka-9", 9092)])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"brokers": 5}',
        b"[" * 100_000,
        b'{"brokers": [{"node_id": -1, "host": "a", "port": 1}]}',
        b'{"brokers": [{"node_id": 1, "host": "", "port": 1}]}',
        b'{"brokers": [{"node_id": 1, "host": "a", "port": 65536}]}',
        b" " * (broker_map.BYTES_MAX + 1),
        json.dumps({"brokers": [{"node_id": n, "host": "a", "port": 1} for n in range(2001)]}).encode(),
    ],
)
def test_a_corrupt_broker_map_is_logged_and_ignored(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "brokers.json"
    path.write_bytes(content)
    with capture_logs() as logged:
        assert BrokerMap(path, UPSTREAM).read() == {}
    assert [(line["event"], line["file"]) for line in logged] == [("broker map ignored", str(path))]


def test_a_named_pipe_in_the_place_of_the_broker_map_does_not_stop_the_start(tmp_path: Path) -> None:
    path = tmp_path / "brokers.json"
    os.mkfifo(path)
    reading = threading.Thread(target=BrokerMap(path, UPSTREAM).read, daemon=True)
    reading.start()
    reading.join(10)
    assert not reading.is_alive()


def test_a_broker_map_keeps_the_brokers_learned_last_if_they_are_too_many(tmp_path: Path) -> None:
    path = tmp_path / "brokers.json"
    write(path, UPSTREAM, {n: Address("a", 1) for n in range(broker_map.BROKERS_MAX + 5)})
    assert list(read(path, UPSTREAM)) == list(range(5, broker_map.BROKERS_MAX + 5))


@pytest.mark.trio
async def test_each_change_of_the_address_book_is_written_and_nothing_else(tmp_path: Path) -> None:
    path, address_book = tmp_path / "brokers.json", book()
    kept, written = BrokerMap(path, UPSTREAM), list[None]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.keep, address_book, lambda: written.append(None))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not path.exists(), "an empty map would replace a good one"
        for node_id, address in [(1, Address("a", 1)), (2, Address("b", 1)), (1, Address("c", 1))]:
            count = len(written)
            address_book.observe(node_id, address)
            while len(written) == count:  # noqa: ASYNC110  # until the thread has written it
                await trio.sleep(0.001)
            assert read(path, UPSTREAM) == address_book.nodes
        before = path.stat()
        address_book.observe(1, Address("c", 1))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert path.stat() == before
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_an_unwritable_broker_map_is_logged_and_written_when_possible(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    directory, address_book = tmp_path / "later", book()
    address_book.observe(1, Address("a", 1))
    written = trio.Event()

    def works() -> None:
        if (directory / "brokers.json").exists():
            written.set()

    with capture_logs() as logged:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(BrokerMap(directory / "brokers.json", UPSTREAM).keep, address_book, works)
            while not logged:  # a thread writes
                await trio.lowlevel.checkpoint()
            directory.mkdir()
            await written.wait()
            nursery.cancel_scope.cancel()
    assert [line["event"] for line in logged if line["event"].startswith("broker map")] == [
        "broker map not written",
        "broker map written again",
    ]


def test_the_broker_map_is_beside_the_snapshot_or_in_the_state_directory_by_default() -> None:
    def path(environment: dict[str, str], **options: str) -> Path | None:
        return path_of(load(None, {"upstream": "kafka:9092", **options}), environment)

    state = {"STATE_DIRECTORY": "/var/lib/weir:/var/lib/other"}
    assert path({}) is None
    assert path(state) == Path("/var/lib/weir/brokers.json")
    snapshot = {"quota_store": "topic", "quota_snapshot": "/data/quotas.toml"}
    assert path(state, **snapshot) == Path("/data/quotas.toml.brokers.json")
    assert path(state, **snapshot, broker_map_file="/map.json") == Path("/map.json")
