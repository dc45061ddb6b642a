"""What to set when node ids do not fit the ports: never a narrower range than is set already."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from weir.proxy.addresses import Address, AddressBook, PortRange
from weir.proxy.config import config
from weir.proxy.port_ranges import PortRanges


def advice(ports: PortRange, node_ids: Sequence[int]) -> str | None:
    return AddressBook(ports, lambda _node_id, _port: None).unmapped(list(node_ids))


@pytest.mark.parametrize(
    ("ports", "node_ids", "remedy"),
    [
        (PortRange(9100, 9199), [1001, 1003], "set --broker-ports 9100-9199@1001"),
        (PortRange(9100, 9199), [0, 120], "set --broker-ports 9100-9220@0"),
        (PortRange(9100, 9101, 1), [1, 2, 3], "set --broker-ports 9100-9102@1"),
        (PortRange(9100, 9102), [1001, 1004], "set --broker-ports 9100-9103@1001"),
        (PortRange(9100, 9199, 5), [1, 7], "set --broker-ports 9100-9199@1"),
    ],
)
def test_the_advice_for_node_ids_out_of_range_names_ports_that_serve_them(
    ports: PortRange, node_ids: list[int], remedy: str
) -> None:
    said = advice(ports, node_ids)
    assert said is not None
    assert said.endswith(f": {remedy}")
    followed = PortRange(*map(int, re.findall(r"\d+", remedy)))
    assert followed.last >= ports.last
    assert advice(followed, node_ids) is None


def test_the_advice_for_too_many_node_ids_asks_for_a_larger_port_range() -> None:
    said = advice(PortRange(65_000, 65_535), [0, 999])
    assert said is not None
    assert said.endswith("set --broker-ports to a range of 1000 ports, FIRST-LAST@0")


def test_no_advice_is_given_if_all_node_ids_fit_the_ports() -> None:
    assert advice(PortRange(9100, 9102, 7), [7, 8, 9]) is None


@pytest.mark.parametrize(
    ("ports", "node_ids", "first"),
    [
        (PortRange(9100, 9199), [1, 2, 3], 0),
        (PortRange(9100, 9199), [1001, 1003], 1000),
        (PortRange(9100, 9199), [1003], 1000),
        (PortRange(9100, 9102), [3, 5], 3),
        (PortRange(9100, 9102), [2, 3, 4], 0),
        (PortRange(9100, 9199), [199, 201], 0),
    ],
)
def test_the_first_node_id_is_derived_from_the_block_of_the_node_ids(
    ports: PortRange, node_ids: list[int], first: int
) -> None:
    assert ports.fitted(node_ids).first_node_id == first


def test_a_configured_first_node_id_is_not_changed() -> None:
    book = AddressBook(PortRange(9100, 9199, 1), lambda _node_id, _port: None)
    book.fit([1001])
    assert book.port(1001) is None


def test_the_first_node_id_stays_once_a_broker_is_known() -> None:
    book = AddressBook(PortRange(9100, 9199), lambda _node_id, _port: None)
    book.observe(7, Address("kafka-7", 9092))
    book.fit([1001])
    assert book.port(7) == 9107


def ranges(text: str) -> PortRanges:
    return config.load(None, {"upstream": "a:1", "broker_ports": text}).ports


def test_node_ids_that_are_far_apart_have_ports_in_their_own_ranges() -> None:
    ports = ranges("9093-9098, 19093-19098@1000")
    found = {node_id: ports.port(node_id) for node_id in (0, 5, 6, 999, 1000, 1005, 1006)}
    assert found == {0: 9093, 5: 9098, 6: None, 999: None, 1000: 19093, 1005: 19098, 1006: None}


def test_a_range_without_a_node_id_continues_behind_the_range_before_it() -> None:
    ports = ranges("9093-9094@1,9200-9201,9300-9301@7")
    assert [ports.port(node_id) for node_id in (1, 2, 3, 4, 7)] == [9093, 9094, 9200, 9201, 9300]


def test_node_ids_outside_of_several_ranges_are_named_with_the_remedy() -> None:
    ports = ranges("9093-9094,9200-9201@7")
    assert ports.unmapped([0, 8]) is None
    said = ports.unmapped([0, 12, 9])
    assert said is not None
    assert "node ids 9, 12" in said
    assert "FIRST-LAST@9" in said


def test_the_first_node_id_of_a_single_range_is_derived_and_those_of_several_are_not() -> None:
    assert ranges("9100-9199").fitted([1001, 1003]).port(1001) == 9101
    several = ranges("9100-9199,9300-9301@500")
    assert several.fitted([1001, 1003]) is several
