"""Whose address is whose, as brokers come, move and are replaced."""

from __future__ import annotations

from weir.proxy.addresses import Address, AddressBook, PortRange

A, B = Address("kafka", 9092), Address("kafka", 9093)


def registry(*nodes: tuple[int, Address]) -> AddressBook:
    made = AddressBook(PortRange(9100, 9199), lambda _node_id, _port: None)
    for node_id, upstream in nodes:
        made.observe(node_id, upstream)
    return made


def test_an_address_belongs_to_its_broker() -> None:
    assert [registry((0, A), (1, B)).node_at(address) for address in (A, B)] == [0, 1]


def test_an_address_taken_over_by_a_new_broker_belongs_to_the_new_broker() -> None:
    assert registry((0, A), (1, B), (2, B)).node_at(B) == 2


def test_an_address_belongs_to_the_known_broker_that_moved_there() -> None:
    assert registry((0, A), (1, B), (0, B)).node_at(B) == 0


def test_an_address_that_its_broker_left_belongs_to_no_broker() -> None:
    assert registry((0, A), (0, B)).node_at(A) is None
