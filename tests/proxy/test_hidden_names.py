"""Clients whose names cannot be seen do not slip back into being nobody by saying more than they need to.

After an exchange that has succeeded, brokers that do not want authentication anew answer further SASL
requests with ILLEGAL_SASL_STATE, and go on (KafkaApis); in the middle of one they close
(SaslServerAuthenticator).
"""

from __future__ import annotations

import pytest

from tests.proxy.playbook import Playbook
from tests.proxy.sasl import (
    AP_REQ,
    ILLEGAL_STATE,
    REFUSED,
    WRAPPED,
    authenticate,
    authenticated,
    bare,
    handshake,
    shaken,
)
from tests.proxy.wire import new_connection
from tests.wire.frames import request
from weir.protocol.messages import ProduceRequest
from weir.proxy.connection.connection import ANONYMOUS
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.sasl.identity import Identities, IdentityRules

PRODUCE = request(ProduceRequest(acks=1), 7, 9)


def logged_in(play: Playbook, raw: bool) -> None:
    play.relays(handshake("GSSAPI", 0 if raw else 1), shaken(0, 0 if raw else 1))
    for token in (AP_REQ, WRAPPED):
        if raw:
            play.relays(bare(token), bare(b"\x60answer"))
        else:
            play.relays(authenticate(token), authenticated(b"answer"))
    assert play.connection.client.user == ANONYMOUS


def new_play() -> Playbook:
    identities = Identities(IdentityRules(hidden="kerberos"))
    return Playbook(connection=new_connection(plans=Plans(Counters(), identities=identities)))


@pytest.mark.parametrize("raw", [True, False])
def test_an_extra_handshake_keeps_a_gssapi_clients_name(raw: bool) -> None:
    with new_play() as play:
        logged_in(play, raw)
        play.relays(handshake("GSSAPI"), shaken(ILLEGAL_STATE))
        assert play.connection.client.user == "kerberos"
        play.forwards(PRODUCE)
        assert play.connection.client.user == "kerberos"


def test_a_refused_token_removes_a_gssapi_clients_name() -> None:
    with new_play() as play:
        logged_in(play, raw=False)
        play.relays(authenticate(b"more"), authenticated(b"", REFUSED))
        play.relays(handshake("GSSAPI"), shaken())
        assert play.connection.client.user == ANONYMOUS
