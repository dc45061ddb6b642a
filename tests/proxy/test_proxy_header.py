"""Headers of the PROXY protocol, against the cases of HAProxy's proxy-protocol.txt, section 2.2."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.proxy_headers import (
    LOCAL,
    PROXY,
    SIGNATURE,
    TCP_4,
    TCP_6,
    UDP_4,
    UDP_6,
    UNIX_STREAM,
    UNSPEC,
    ends,
    header,
    of,
    tlv,
)
from weir.proxy.addresses import Address
from weir.proxy.net.proxy_protocol.header import (
    HEADER_BYTES_MAX,
    Header,
    InvalidHeaderError,
    NoHeaderError,
    parse,
)

# As a dump of the wire: signature, version 2 with PROXY, TCP over IPv4, 12 bytes, source, destination, ports
IPV4 = bytes.fromhex("0d0a0d0a000d0a515549540a 21 11 000c c0000207 c0000208 dc04 01bb")
# The same over IPv6: 36 bytes
IPV6 = bytes.fromhex(
    "0d0a0d0a000d0a515549540a 21 21 0024"
    "20010db8000000000000000000000007 20010db8000000000000000000000008 dc04 01bb"
)
# A health check of the load balancer's own
CHECK = bytes.fromhex("0d0a0d0a000d0a515549540a 20 00 0000")


@pytest.mark.parametrize(
    ("data", "client"),
    [(IPV4, Address("192.0.2.7", 56324)), (IPV6, Address("2001:db8::7", 56324)), (CHECK, None)],
)
def test_bytes_as_on_the_wire_are_read(data: bytes, client: Address | None) -> None:
    assert parse(data) == Header(client)


def test_an_ipv4_client_of_an_ipv6_header_is_known_by_its_ipv4_address() -> None:
    assert parse(of("::ffff:192.0.2.7", 5)) == Header(Address("192.0.2.7", 5))


@pytest.mark.parametrize(
    "data",
    [
        header(LOCAL, TCP_4, ends("192.0.2.7", 5)),  # the specification: discard the addresses
        header(LOCAL, 0xFF, b"what follows"),  # and ignore the family
        header(PROXY, UNSPEC),
        header(PROXY, UNSPEC, bytes(36)),
        header(PROXY, UDP_4, ends("192.0.2.7", 5)),
        header(PROXY, UDP_6, ends("2001:db8::7", 5)),
        header(PROXY, UNIX_STREAM, bytes(216)),
        header(PROXY, TCP_4 & 0xF0, ends("192.0.2.7", 5)),  # IPv4 without a transport
    ],
)
def test_headers_without_an_address_of_tcp_leave_the_load_balancers_address(data: bytes) -> None:
    assert parse(data) == Header(None)


@pytest.mark.parametrize(
    "data",
    [
        SIGNATURE + bytes([0x11, TCP_4, 0, 12]) + ends("192.0.2.7", 5),  # version 1
        SIGNATURE + bytes([0x31, TCP_4, 0, 12]) + ends("192.0.2.7", 5),  # version 3
        header(0x22, TCP_4, ends("192.0.2.7", 5)),  # unassigned command
        header(PROXY, 0x41, bytes(36)),  # unassigned family
        header(PROXY, 0x13, bytes(36)),  # unassigned transport
        header(PROXY, TCP_4, bytes(11)),
        header(PROXY, TCP_6, bytes(35)),
        header(PROXY, TCP_4, length=0xFFFF),
        header(LOCAL, UNSPEC, length=HEADER_BYTES_MAX - 15),
    ],
)
def test_malformed_headers_are_refused_at_their_fixed_part(data: bytes) -> None:
    with pytest.raises(InvalidHeaderError):
        parse(data[:16])


def test_version_1_is_refused_with_advice() -> None:
    with pytest.raises(InvalidHeaderError, match=r"version 1: .* version 2"):
        parse(b"PROXY TCP4 192.0.2.7 192.0.2.8 56324 443\r\n")


@pytest.mark.parametrize("data", [b"\x16\x03\x01", b"\0\0\0\x10\0\x12", b"P\0", SIGNATURE[:5] + b"\x01"])
def test_other_bytes_are_no_header(data: bytes) -> None:
    with pytest.raises(NoHeaderError):
        parse(data)


addresses = st.ip_addresses(v=4) | st.ip_addresses(v=6)


tlv_lists = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=50)), max_size=9)


@given(addresses, st.integers(0, 65535), tlv_lists)
def test_every_cut_of_a_header_asks_for_more_and_the_whole_has_the_address(
    source: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int, tlvs: list[tuple[int, bytes]]
) -> None:
    more = b"".join(tlv(kind, value) for kind, value in tlvs)
    data = header(PROXY, TCP_4 if source.version == 4 else TCP_6, ends(str(source), port) + more)
    for count in range(len(data)):
        needed = parse(data[:count])
        assert isinstance(needed, int)
        assert count < needed <= len(data)
    mapped = source.ipv4_mapped if isinstance(source, ipaddress.IPv6Address) else None
    assert parse(data) == Header(Address(str(mapped or source), port))
