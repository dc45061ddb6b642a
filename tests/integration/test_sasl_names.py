"""Weir believes whom the broker believes, and nobody else: names as odd tokens write them, and names that are
claimed without right.
"""

from __future__ import annotations

import base64
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.clients import create_topic
from tests.integration.weir_log import entries
from tests.integration.with_sasl import GENEROUS_TO_ALL, Front, assert_untold
from tests.kafka.sasl import ALICE, BOB, OAUTHBEARER, ODD, PLAIN, SCRAM_256
from tests.raw import NEW, OLD, BrokerVersions, produce
from tests.raw.sasl import SaslConnection, SaslError, oauthbearer, plain, scram
from tests.wire import frames
from weir.protocol.messages import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    SaslAuthenticateRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.conftest import StartWeir
    from tests.kafka.fixtures import StartCluster
    from tests.raw.sasl import Conversation

pytestmark = [pytest.mark.broker]

VERSION = "3.9.1"
NOBODY = "ANONYMOUS"
LIVES_S = 3600
EXPIRED = '{"sub":"alice","exp":1}'
ALICES = '{"sub":"alice","exp":%d}'
WRONG = "wrong-Pw-2ac017"
RECORD_BYTES = 100
PATIENCE_S = 30.0


def claims(text: str) -> str:
    """A token with a payload as it is written here; %d is when it expires: an hour after this call."""
    expires = str(int(time.time()) + LIVES_S)
    return ".".join((coded('{"alg":"none"}'), coded(text.replace("%d", expires)), ""))


def coded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def response(payload: str) -> bytes:
    return f"n,,\1auth=Bearer {claims(payload)}\1\1".encode()


def accepted() -> dict[str, bytes]:
    alices, bobs = claims(ALICES), claims('{"sub":"bob","exp":%d}')
    payloads = {
        "two subjects": '{"sub":"alice","exp":%d,"sub":"bob"}',
        "two subjects, one escaped": '{"\\u0073ub":"alice","exp":%d,"sub":"bob"}',
        "nested": '{"x":{"sub":"bob"},"sub":"alice","exp":%d}',
        "spaces around": ' {\n"sub" : "alice", "exp":%d} ',
        "no name": '{"sub":null,"exp":%d}',
        "two documents": '{"sub":"alice","exp":%d}{"sub":"bob"}',
        "half a character": '{"sub":"a\\ud800","exp":%d}',
        "escaped letters": '{"sub":"j\\u00f6rg, o=ps \\"x\\"","exp":%d}',
    }
    return {
        "plain": f"n,,\1auth=Bearer {alices}\1\1".encode(),
        "small letters, two spaces": f"n,,\1auth=bearer  {alices}\1\1".encode(),
        "two tokens": f"n,,\1auth=Bearer {alices}\1auth=Bearer {bobs}\1\1".encode(),
        "another key": f"n,,\1auth=Bearer {alices}\1Auth=Bearer {bobs}\1\1".encode(),
        "an extension before": f"n,,\1foo=bar\1auth=Bearer {alices}\1\1".encode(),
        "an extension sub": f"n,,\1auth=Bearer {alices}\1sub=bob\1\1".encode(),
        "its own authorization id": f"n,a=alice,\1auth=Bearer {alices}\1\1".encode(),
    } | {what: response(payload) for what, payload in payloads.items()}


def refused() -> dict[str, bytes]:
    alices = claims(ALICES)
    return {
        "a number": response('{"sub":5,"exp":%d}'),
        "no expiry": response('{"sub":"alice"}'),
        "another's authorization id": f"n,a=bob,\1auth=Bearer {alices}\1\1".encode(),
        "bytes behind": f"n,,\1auth=Bearer {alices}\1\1xyz".encode(),
        "a signature": f"n,,\1auth=Bearer {alices}c2ln\1\1".encode(),
    }


def bearer(response: bytes) -> Conversation:
    """As `raw.sasl.oauthbearer`, of any bytes."""
    if (yield response):
        yield b"\1"


class Visitor:
    """Whoever comes over one connection after the other; it produces with a client-id for each."""

    def __init__(self, front: Front, topic: str, broker_versions: BrokerVersions = NEW) -> None:
        self.said: list[bytes] = []
        self._front, self._topic, self._broker_versions = front, topic, broker_versions

    def come(self, client_id: str, mechanism: str, talk: Conversation) -> str:
        """Log in, produce a record; who the broker says it is. Raises SaslError."""
        with self.connect(client_id) as connection:
            connection.handshake(mechanism, 1)
            connection.authenticate(talk, 2)
            self.produce(connection, client_id)
            return owner(connection)

    def connect(self, client_id: str) -> SaslConnection:
        connection = SaslConnection(self._front.broker, client_id)
        connection.said = self.said
        return connection

    def record(self, client_id: str) -> bytes:
        return produce(self._broker_versions, client_id, self._topic, RECORD_BYTES).frame

    def produce(self, connection: SaslConnection, client_id: str) -> None:
        """Raises SaslError."""
        connection.send(self.record(client_id))
        connection.receive()

    def ledger(self) -> dict[str, str]:
        charged = [sharer for sharer in self._front.charged() if sharer.client_id]
        assert len({sharer.client_id for sharer in charged}) == len(charged), "one client-id, two users"
        return {sharer.client_id: sharer.user for sharer in charged}


def owner(connection: SaslConnection) -> str:
    return made_token(connection).principal_name


def made_token(connection: SaslConnection) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=600_000
    )
    answer = connection.ask(request, CreateDelegationTokenResponse, 3)
    assert answer.error_code == 0
    return answer


@pytest.fixture
def front(kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path) -> Front:
    cluster = kafka_cluster(VERSION)
    create_topic(cluster.bootstrap, topic)
    return Front(start_weir, cluster, tmp_path, GENEROUS_TO_ALL)


@pytest.mark.core
def test_odd_sasl_tokens_give_the_principals_that_the_broker_sees(front: Front, topic: str) -> None:
    visitor = Visitor(front, topic)
    believed = {what: visitor.come(what, OAUTHBEARER, bearer(said)) for what, said in accepted().items()}
    extended = "n=bob"  # behind the nonce it is an extension, which no broker knows
    believed["scram, another name behind"] = visitor.come(
        "scram, another name behind", SCRAM_256, scram(SCRAM_256, *ALICE, extended)
    )
    believed["scram, escaped"] = visitor.come("scram, escaped", SCRAM_256, scram(SCRAM_256, *ODD))
    believed["plain, its own id"] = visitor.come("plain, its own id", PLAIN, plain(*ALICE, ALICE.name))
    assert visitor.ledger() == believed
    assert set(believed.values()) == {"alice", "bob", "null", "a?", 'jörg, o=ps "x"', ODD.name}
    assert_untold(front, visitor.said)


def test_refused_sasl_tokens_are_charged_to_no_user(front: Front, topic: str) -> None:
    visitor = Visitor(front, topic)
    for what, said in refused().items():
        with pytest.raises(SaslError):
            visitor.come(what, OAUTHBEARER, bearer(said))
    assert visitor.ledger() == {}
    assert [entry for entry in entries(front.weir.log) if entry["level"] == "warning"] == []


def test_a_delegation_token_is_its_owners_after_weir_saw_its_creation(
    kafka_cluster: StartCluster, front: Front, topic: str
) -> None:
    visitor = Visitor(front, topic)
    direct = ("127.0.0.1", kafka_cluster(VERSION).sasl_ports[0])
    with SaslConnection(direct) as connection, visitor.connect("maker") as known:
        unseen = made_token(connection.log_in(PLAIN, *BOB))
        made = made_token(known.log_in(SCRAM_256, *ALICE))

        use(visitor, made, "made")
        use(visitor, unseen, "unseen")
        request = DescribeDelegationTokenRequest(owners=None)
        with visitor.connect("describer") as describer:
            found = describer.log_in(PLAIN, *BOB).ask(request, DescribeDelegationTokenResponse, 3)
        assert unseen.token_id in {token.token_id for token in found.tokens}
        use(visitor, unseen, "described")
    assert visitor.ledger() == {"made": "alice", "unseen": NOBODY, "described": "bob"}
    secrets = [base64.b64encode(token.hmac) for token in (made, unseen)]
    written = front.weir.written().values()
    assert not [secret for secret in secrets if any(secret in text for text in written)]
    assert_untold(front, visitor.said)


def use(visitor: Visitor, token: CreateDelegationTokenResponse, client_id: str) -> None:
    """Come with a token and produce; a KRaft broker knows a new token a moment later. Raises SaslError."""
    password, deadline = base64.b64encode(token.hmac).decode(), time.monotonic() + PATIENCE_S
    while True:
        with visitor.connect(client_id) as connection:
            connection.handshake(SCRAM_256, 1)
            try:
                connection.authenticate(scram(SCRAM_256, token.token_id, password, "tokenauth=true"), 2)
            except SaslError:
                if time.monotonic() > deadline:
                    raise
            else:
                visitor.produce(connection, client_id)
                return


@pytest.mark.parametrize("version", ["0.10.2.2", VERSION])
def test_a_name_in_a_failed_authentication_is_never_charged(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path, version: str
) -> None:
    """With requests behind the token in the same packet, as if it had been accepted; the broker closes."""
    old = version == "0.10.2.2"
    cluster = kafka_cluster(version)
    create_topic(cluster.bootstrap, topic)
    front = Front(start_weir, cluster, tmp_path, GENEROUS_TO_ALL)
    visitor = Visitor(front, topic, OLD if old else NEW)
    claimed: list[tuple[str, Callable[[str, str], Conversation], str, str]] = [
        (PLAIN, plain, ALICE.name, WRONG),
        (PLAIN, plain, "mallory", WRONG),
        (SCRAM_256, partial(scram, SCRAM_256), ODD.name, WRONG),
        *([] if old else [(OAUTHBEARER, lambda _name, token: oauthbearer(token), "alice", claims(EXPIRED))]),
    ]
    for number, (mechanism, talk, name, secret) in enumerate(claimed):
        for bare in (True,) if old else (True, False):
            push_in(visitor, f"pushed {number} {bare}", mechanism, next(talk(name, secret)), bare)
    assert set(visitor.ledger().values()) <= {NOBODY}
    with visitor.connect("right") as connection:
        connection.log_in(PLAIN, *ALICE, None if old else 2)
        visitor.produce(connection, "right")
    assert visitor.ledger()["right"] == ALICE.name
    assert {*visitor.ledger().values()} <= {NOBODY, ALICE.name}
    assert_untold(front, visitor.said)


def push_in(visitor: Visitor, client_id: str, mechanism: str, token: bytes, bare: bool) -> None:
    """Send a token and requests in one piece, and read until the end."""
    visitor.said.append(token)
    with visitor.connect(client_id) as connection:
        connection.handshake(mechanism, 0 if bare else 1)
        wrapped = frames.framed(token)
        if not bare:
            wrapped = frames.request(SaslAuthenticateRequest(auth_bytes=token), 2)
        connection.send(wrapped + 2 * visitor.record(client_id))
        with suppress(SaslError):
            while True:
                connection.receive()
