"""SASL frame by frame: a client sees through Weir what it sees at the broker; Weir believes whom the broker
believes, and nobody else.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.integration.with_sasl import GENEROUS_TO_ALL, Front, assert_untold
from tests.kafka.sasl import (
    ALICE,
    BOB,
    OAUTHBEARER,
    PLAIN,
    SCRAM_256,
    SCRAM_512,
    User,
    mechanisms,
    unsecured_token,
)
from tests.raw.sasl import SaslConnection, SaslError, conversation, oauthbearer, plain, scram
from tests.wire import frames
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.conftest import StartWeir
    from tests.kafka.fixtures import StartCluster
    from tests.raw import Address
    from tests.raw.sasl import Conversation

    Case = Callable[[SaslConnection], object]

pytestmark = [pytest.mark.broker]

WRONG = "wrong-Pw-5d00e9"
VERSIONS = ["0.10.2.2", "3.9.1"]
"""2.8.2 and 4.2.0 answered as 3.9.1 does, when all four were looked at."""


def token_of(name: str, lives_s: int = 600) -> str:
    return unsecured_token({"sub": name, "exp": int(time.time()) + lives_s})


def secret(mechanism: str, user: User, *, right: bool = True) -> str:
    """A password, or a token; a wrong one, or one that has expired."""
    if mechanism == OAUTHBEARER:
        return token_of(user.name, 600 if right else -600)
    return user.password if right else WRONG


# What is asked, and what came of it. A closed connection is an answer as well.


def metadata(connection: SaslConnection) -> str:
    try:
        answer = connection.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
    except SaslError:
        return "closed"
    return f"{len(answer.brokers)} brokers"


def api_versions(connection: SaslConnection, version: int = 0) -> str:
    try:
        return f"error {connection.ask(ApiVersionsRequest(), ApiVersionsResponse, version).error_code}"
    except SaslError:
        return "closed"


def shake(connection: SaslConnection, mechanism: str, version: int) -> str:
    try:
        connection.handshake(mechanism, version)
    except SaslError as error:
        offered = sorted((error.text or "").split(","))
        return f"{error.code} {offered}"
    return "accepted"


def prove(connection: SaslConnection, talk: Conversation, version: int | None) -> list[str]:
    heard = len(connection.heard)
    try:
        connection.authenticate(talk, version)
        end = f"accepted for {connection.session_lifetime_ms} ms"
    except SaslError as error:
        end = str(error)
    tokens = [answer.decode() for answer in connection.heard[heard:]]
    return [*(text[:2] if text[:2] in ("r=", "v=") else text for text in tokens), end]


def logs_in(mechanism: str, user: User, version: int | None, *, right: bool = True) -> Case:
    def case(connection: SaslConnection) -> object:
        shaken = shake(connection, mechanism, 0 if version is None else 1)
        talk = conversation(mechanism, user.name, secret(mechanism, user, right=right))
        return [shaken, prove(connection, talk, version), metadata(connection)]

    return case


def fails_then(mechanism: str, version: int | None) -> Case:
    def case(connection: SaslConnection) -> object:
        with suppress(SaslError):
            connection.log_in(mechanism, ALICE.name, secret(mechanism, ALICE, right=False), version)
        return logs_in(mechanism, ALICE, version)(connection)

    return case


def talks(mechanism: str, talk: Callable[[], Conversation], version: int | None) -> Case:
    def case(connection: SaslConnection) -> object:
        shaken = shake(connection, mechanism, 0 if version is None else 1)
        return [shaken, prove(connection, talk(), version), metadata(connection)]

    return case


def again(mechanism: str, then: Case) -> Case:
    def case(connection: SaslConnection) -> object:
        connection.log_in(mechanism, ALICE.name, secret(mechanism, ALICE))
        return [metadata(connection), then(connection)]

    return case


def unknown_mechanism(connection: SaslConnection) -> object:
    return [shake(connection, "X-NONE", 0), shake(connection, PLAIN, 0)]


def unknown_mechanism_v1(connection: SaslConnection) -> object:
    return [shake(connection, "X-NONE", 1), shake(connection, PLAIN, 1)]


def shakes_twice(connection: SaslConnection) -> object:
    return [shake(connection, PLAIN, 0), shake(connection, SCRAM_256, 0), metadata(connection)]


def versions_twice(connection: SaslConnection) -> object:
    return [api_versions(connection), api_versions(connection), metadata(connection)]


def versions_then_in(version: int | None) -> Case:
    def case(connection: SaslConnection) -> object:
        before = api_versions(connection)
        return [before, logs_in(PLAIN, ALICE, version)(connection), api_versions(connection)]

    return case


def wrapped_without_handshake(connection: SaslConnection) -> object:
    return [prove(connection, plain(*ALICE), 1), metadata(connection)]


def wrapped_where_bare_is_due(connection: SaslConnection) -> object:
    return [shake(connection, PLAIN, 0), prove(connection, plain(*ALICE), 1), metadata(connection)]


def bare_where_wrapped_is_due(connection: SaslConnection) -> object:
    return [shake(connection, PLAIN, 1), prove(connection, plain(*ALICE), None), metadata(connection)]


def asks_between(connection: SaslConnection) -> object:
    return [shake(connection, SCRAM_512, 1), metadata(connection), metadata(connection)]


def pipelined(version: int | None, token: bytes) -> Case:
    def case(connection: SaslConnection) -> object:
        connection.said.append(token)
        wrapped = frames.framed(token)
        if version is not None:
            wrapped = frames.request(SaslAuthenticateRequest(auth_bytes=token), version, 2)
        shaking = frames.request(SaslHandshakeRequest(mechanism=PLAIN), 0 if version is None else 1, 1)
        asked = [frames.request(MetadataRequest(topics=[]), 1, number) for number in (3, 4)]
        connection.send(b"".join([shaking, wrapped, *asked]))
        came = []
        with suppress(SaslError):
            came += [connection.receive()[4:10].hex() for _ in range(4)]
        return came

    return case


def shakes_when_in(version: int) -> Case:
    return again(PLAIN, lambda connection: [shake(connection, PLAIN, version), metadata(connection)])


def proves_when_in(connection: SaslConnection) -> object:
    answer = connection.ask(
        SaslAuthenticateRequest(auth_bytes=b"\0bob\0" + BOB.password.encode()), SaslAuthenticateResponse, 2
    )
    return [answer.error_code, answer.error_message, metadata(connection)]


def cases(version: str) -> dict[str, Case]:
    old = version == "0.10.2.2"
    shapes: tuple[int | None, ...] = (None,) if old else (None, 0, 1, 2)
    last = shapes[-1]
    found: dict[str, Case] = {
        "metadata first": lambda connection: metadata(connection),
        "unknown mechanism": unknown_mechanism,
        "handshake twice": shakes_twice,
        "versions twice": versions_twice,
        "authorization id, own": talks(PLAIN, lambda: plain(*ALICE, "alice"), last),
        "authorization id, another": talks(PLAIN, lambda: plain(*ALICE, "bob"), last),
        "scram, not ASCII": talks(SCRAM_256, lambda: scram(SCRAM_256, "jörg", WRONG), last),
        "scram, extension": talks(SCRAM_256, lambda: scram(SCRAM_256, *ALICE, "foo=bar"), last),
        "scram, a password as token": talks(
            SCRAM_256, lambda: scram(SCRAM_256, *ALICE, "tokenauth=true"), last
        ),
        "pipelined": pipelined(last, next(plain(*ALICE))),
        "pipelined, wrong password": pipelined(last, next(plain(ALICE.name, WRONG))),
        "versions, then in": versions_then_in(last),
    }
    for shape in shapes:
        for mechanism in mechanisms(version):
            named = f"{mechanism}, {'bare' if shape is None else f'v{shape}'}"
            found[named] = logs_in(mechanism, ALICE, shape)
            found[f"{named}, wrong"] = logs_in(mechanism, ALICE, shape, right=False)
            found[f"{named}, wrong and again"] = fails_then(mechanism, shape)
            if mechanism != OAUTHBEARER:
                found[f"{named}, nobody"] = logs_in(mechanism, User("nobody", WRONG), shape)
    return found if old else found | new_cases()


def new_cases() -> dict[str, Case]:
    """What 0.10.2.2 has no words for, or what would make it read a token where a request is meant."""
    found: dict[str, Case] = {
        "unknown mechanism, v1": unknown_mechanism_v1,
        "wrapped without handshake": wrapped_without_handshake,
        "wrapped where bare is due": wrapped_where_bare_is_due,
        "bare where wrapped is due": bare_where_wrapped_is_due,
        "versions, then in, bare": versions_then_in(None),
        "asks between": asks_between,
        "pipelined, bare": pipelined(None, next(plain(*ALICE))),
        "pipelined, bare, wrong password": pipelined(None, next(plain(ALICE.name, WRONG))),
        "handshake when in": shakes_when_in(0),
        "handshake v1 when in": shakes_when_in(1),
        "token when in": again(PLAIN, proves_when_in),
        "bearer, another authorization id": talks(
            OAUTHBEARER, lambda: oauthbearer(token_of("alice"), "bob"), 2
        ),
        "bearer, no JWT": talks(OAUTHBEARER, lambda: oauthbearer("not-a-token"), 2),
    }
    for mechanism in (SCRAM_512, OAUTHBEARER):
        for shape in (None, 2):
            named = f"{mechanism} again, {'bare' if shape is None else f'v{shape}'}"
            found[named] = again(mechanism, logs_in(mechanism, ALICE, shape))
            found[f"{named}, another"] = again(mechanism, logs_in(mechanism, BOB, shape))
            found[f"{named}, wrong"] = again(mechanism, logs_in(mechanism, ALICE, shape, right=False))
        found[f"{mechanism} again, by SCRAM-SHA-256"] = again(mechanism, logs_in(SCRAM_256, ALICE, 2))
        found[f"{mechanism} again, asks between"] = again(mechanism, asks_between)
    return found


class Seen(NamedTuple):
    outcome: object
    said: list[bytes]


def tried(case: Case, at: Address) -> Seen:
    with SaslConnection(at) as connection:
        try:
            outcome = case(connection)
        except SaslError as error:
            outcome = str(error)
        return Seen(outcome, connection.said)


@pytest.mark.core
@pytest.mark.parametrize("version", VERSIONS)
def test_sasl_frames_through_weir_equal_those_of_the_broker(
    kafka_cluster: StartCluster, start_weir: StartWeir, tmp_path: Path, version: str
) -> None:
    cluster = kafka_cluster(version)
    front = Front(start_weir, cluster, tmp_path, GENEROUS_TO_ALL)
    direct, wanted = ("127.0.0.1", cluster.sasl_ports[0]), cases(version)
    with ThreadPoolExecutor(8) as pool:
        at_broker = {name: pool.submit(tried, case, direct) for name, case in wanted.items()}
        through = {name: pool.submit(tried, case, front.broker) for name, case in wanted.items()}
    others = {
        name: (seen.result().outcome, at_broker[name].result().outcome)
        for name, seen in through.items()
        if seen.result().outcome != at_broker[name].result().outcome
    }
    assert others == {}
    assert front.weir.stop() == 0
    assert_untold(front, [token for seen in through.values() for token in seen.result().said])
