"""A tap sees the bytes of both sockets as they were read, and their ends."""

from __future__ import annotations

import pytest

from tests.proxy.rigs import Rig, tcp_pair
from tests.wire.frames import request, response
from weir.protocol.messages import ApiVersionsRequest, MetadataRequest, MetadataResponse
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.net.reactor import Reactor
from weir.proxy.net.relay import OnEnd, Relay
from weir.proxy.net.side import Socket
from weir.proxy.net.tapped_relay import TappedRelay


class Notes:
    def __init__(self) -> None:
        self.client = b""
        self.broker = b""
        self.ends: set[bool] = set()

    def sent(self, data: memoryview, *, by_client: bool) -> None:
        if by_client:
            self.client += data
        else:
            self.broker += data

    def ended(self, *, by_client: bool) -> None:
        self.ends.add(by_client)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    kept = Notes()

    def tapped(
        reactor: Reactor, client: Socket, broker: Socket, connection: Connection, on_end: OnEnd
    ) -> Relay:
        return TappedRelay(reactor, client, broker, connection, on_end, kept)

    monkeypatch.setattr("tests.proxy.rigs.new_relay", tapped)
    return kept


TLS = [(), ("client",), ("broker",), ("client", "broker")]


@pytest.mark.parametrize("tls", TLS, ids=lambda tls: "+".join(tls) or "plain")
def test_a_tap_sees_requests_and_responses_decrypted(notes: Notes, tls: tuple[str, ...]) -> None:
    rig = Rig(pair=tcp_pair, tls=tls)
    ask = request(ApiVersionsRequest(), 0) + request(MetadataRequest(), 1, 2)
    assert rig.pass_on(ask, rig.client, rig.broker) == ask
    assert notes.client == ask
    rig.close()


def test_a_tap_sees_responses_as_the_broker_sent_them(notes: Notes) -> None:
    rig = Rig(pair=tcp_pair)
    ask = request(MetadataRequest(), 1)
    rig.pass_on(ask, rig.client, rig.broker)
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=1, host="kafka-1", port=9092)]
    answer = response(MetadataResponse(brokers=brokers), 1)
    rig.send(rig.broker, answer)
    rig.turn(5)
    rewritten = rig.take(rig.client)
    assert rewritten
    assert b"kafka-1" not in rewritten
    assert notes.broker == answer
    rig.close()


def test_a_tap_sees_large_frames_whole(notes: Notes) -> None:
    rig = Rig(pair=tcp_pair)
    ask = request(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t" * 200)] * 5000), 1)
    assert rig.pass_on(ask, rig.client, rig.broker) == ask
    assert notes.client == ask
    rig.close()


def test_a_tap_is_told_the_ends_of_both_sides(notes: Notes) -> None:
    rig = Rig(pair=tcp_pair)
    rig.client.close()
    assert rig.end() is CloseReason.CLIENT_CLOSED
    assert notes.ends == {True, False}
    rig.close()
