"""Whose address is whose, as brokers come, move and are replaced."""

from __future__ import annotations

import pytest

from weir.proxy.addresses import Address, AddressBook, PortRange

A, B = Address("kafka", 9092), Address("kafka", 9093)


def registry(*nodes: tuple[int, Address]) -> AddressBook:
    made = AddressBook(PortRange(9100, 9199), lambda _node_id, _port: None)
    for node_id, upstream in nodes:
        made.observe(node_id, upstream)
    return made


@pytest.mark.parametrize(
    ("seen", "owners"),
    [
        (((0, A), (1, B)), [0, 1]),
        (((0, A), (1, B), (2, B)), [0, 2]),  # taken over by a new broker
        (((0, A), (1, B), (0, B)), [None, 0]),  # a known broker has moved there
    ],
)
def test_an_address_belongs_to_the_broker_seen_there_last(
    seen: tuple[tuple[int, Address], ...], owners: list[int | None]
) -> None:
    assert [registry(*seen).node_at(address) for address in (A, B)] == owners
