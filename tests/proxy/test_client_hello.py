"""The server name in a client's first TLS record."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.proxy.net.tls.client_hello import server_name


def client_hello(name: str | None, *, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.maximum_version = newest
    context.set_alpn_protocols(["kafka"])
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", ["broker-7.kafka.test", None])
def test_the_server_name_is_the_one_that_openssl_sends(name: str | None, newest: ssl.TLSVersion) -> None:
    assert server_name(client_hello(name, newest=newest)) == name


def test_a_record_that_ends_early_has_no_server_name() -> None:
    whole = client_hello("broker-7.kafka.test")
    assert {server_name(whole[:length]) for length in range(len(whole))} == {None}


def test_a_client_hello_in_two_records_has_no_server_name() -> None:
    whole = client_hello("broker-7.kafka.test")
    assert server_name(whole[:3] + (50).to_bytes(2) + whole[5:55]) is None


@given(st.binary(max_size=300), st.integers(0, 200))
def test_any_bytes_have_a_server_name_or_none(some: bytes, at: int) -> None:
    whole = client_hello("broker-7.kafka.test")
    for data in (some, whole[:at] + some + whole[at + len(some) :]):
        found = server_name(data)
        assert found is None or found.isascii()
