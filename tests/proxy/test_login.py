"""Logging in to brokers: what goes over the wire, to new brokers and old ones, and what refusals say."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import pytest
import trio
import trio.testing
from scramp import ScramException, ScramMechanism

from tests.kfake.cluster import Cluster
from tests.kfake.in_trio import converse, serve
from tests.proxy.login_broker import ADDRESS, MODERN, OLD, Broker, Verify, accepting
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    MetadataRequest,
    MetadataResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from weir.protocol.versions import VersionRange
from weir.proxy.addresses import AddressBook
from weir.proxy.config.config import ConfigError, Settings, load
from weir.proxy.config.principals import Credentials, credentials_of
from weir.proxy.control.cluster.connection import LoginError, OwnConnection, QuestionError
from weir.proxy.control.cluster.discovery import first_brokers
from weir.proxy.control.cluster.login import log_in
from weir.proxy.run import single

PASSWORD: Final = "pencil-8d1f"  # noqa: S105  # a test's
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def refusing(_token: bytes) -> bytes:
    raise PermissionError


def scram(mechanism: str, password: str = PASSWORD) -> Verify:
    algorithm = ScramMechanism(mechanism)
    server = algorithm.make_server(lambda _user: algorithm.make_auth_info(password, iteration_count=4096))
    steps = iter(
        [
            (server.set_client_first, server.get_server_first),
            (server.set_client_final, server.get_server_final),
        ]
    )

    def verify(token: bytes) -> bytes:
        take, give = next(steps)
        try:
            take(token.decode())
        except ScramException:
            raise PermissionError from None
        return bytes(give().encode())

    return verify


def play(broker: Broker, mechanism: str, username: str = "user") -> None:
    async def main() -> None:
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(converse, broker, theirs)
            async with OwnConnection(ours, ADDRESS, 5.0) as connection:
                await log_in(connection, Credentials(mechanism, username, PASSWORD))
                await connection.ask(MetadataRequest(topics=[]), MetadataResponse, 1)

    try:
        trio.run(main)
    except BaseExceptionGroup as group:
        raise single(group) from None


def refused(broker: Broker, mechanism: str) -> str:
    with pytest.raises(LoginError) as refusal:
        play(broker, mechanism)
    said = str(refusal.value)
    assert said.startswith("kafka-1:9092: ")
    assert said.isprintable()
    assert PASSWORD not in said
    return said


# Mechanisms


@pytest.mark.parametrize(("apis", "version"), [(MODERN, 1), (OLD, 0)], ids=["1.0", "0.10"])
def test_a_plain_login_sends_an_empty_authorization_id_user_and_password(
    apis: dict[int, VersionRange], version: int
) -> None:
    broker = Broker(verify=accepting, spoken=apis)
    play(broker, "PLAIN")
    assert broker.asked_of(SaslHandshakeRequest) == [version]
    assert [each.mechanism for each in broker.messages_of(SaslHandshakeRequest)] == ["PLAIN"]
    assert broker.tokens == [b"\0user\0pencil-8d1f"], "RFC 4616"


@pytest.mark.parametrize("apis", [MODERN, OLD], ids=["1.0", "0.10"])
@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_scram_login_proves_the_password_without_sending_it(
    mechanism: str, apis: dict[int, VersionRange]
) -> None:
    broker = Broker(verify=scram(mechanism), spoken=apis, rounds=2)
    play(broker, mechanism, "a,b=c")
    first, final = broker.tokens
    assert first.startswith(b"n,,n=a=2Cb=3Dc,r="), "RFC 5802, section 5.1"
    assert final.startswith(b"c=biws,r=")
    assert PASSWORD.encode() not in first + final


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_scram_broker_with_a_wrong_signature_is_rejected(mechanism: str) -> None:
    genuine = scram(mechanism)

    def impostor(token: bytes) -> bytes:
        answer = genuine(token)
        return b"v=AAAA" if answer.startswith(b"v=") else answer

    assert "its SCRAM answer is wrong" in refused(Broker(verify=impostor), mechanism)


@pytest.mark.parametrize("answer", [b"", b"\xff", b"r=x,s=AA==,i=1", b"e=other-error", b"nonsense"])
def test_a_malformed_scram_response_is_reported_in_one_line(answer: bytes) -> None:
    assert "its SCRAM answer is wrong" in refused(Broker(verify=lambda _token: answer), "SCRAM-SHA-256")


# Refusals


def test_a_failed_login_shows_the_brokers_message_and_the_settings_to_check() -> None:
    assert refused(Broker(verify=refusing), "PLAIN") == (
        "kafka-1:9092: it does not accept 'user' with PLAIN, check upstream_sasl_username and "
        "upstream_sasl_password_file: Authentication failed: no"
    )
    assert "does not accept 'user'" in refused(
        Broker(verify=scram("SCRAM-SHA-256", "other")), "SCRAM-SHA-256"
    )


def test_an_old_broker_that_closes_after_the_token_refused_the_login() -> None:
    assert "does not accept 'user' with PLAIN" in refused(Broker(verify=refusing, spoken=OLD), "PLAIN")
    assert "does not accept" in refused(
        Broker(verify=scram("SCRAM-SHA-512", "other"), spoken=OLD, rounds=2), "SCRAM-SHA-512"
    )


def test_a_login_with_a_disabled_mechanism_names_the_enabled_ones() -> None:
    handshake = SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI", "SCRAM-SHA-512"])
    for apis in (MODERN, OLD):
        assert refused(Broker(verify=accepting, spoken=apis, handshake=handshake), "PLAIN") == (
            "kafka-1:9092: it has not enabled PLAIN, but GSSAPI, SCRAM-SHA-512: set upstream_sasl_mechanism"
        )


def test_a_login_at_a_port_without_sasl_is_reported() -> None:
    broker = Broker(verify=accepting, handshake=SaslHandshakeResponse(error_code=34))
    assert "it takes no SASL at this port" in refused(broker, "PLAIN")
    broker = Broker(verify=accepting, handshake=SaslHandshakeResponse(error_code=-1))
    assert "SaslHandshake with error -1" in refused(broker, "PLAIN")


def test_a_broker_that_closes_on_the_handshake_did_not_refuse_the_login() -> None:
    broker = Broker(verify=accepting)
    broker.handlers = dict.fromkeys(broker.handlers, lambda *_: None)
    with pytest.raises(QuestionError, match="closed the connection") as failure:
        play(broker, "PLAIN")
    assert not isinstance(failure.value, LoginError)


@pytest.mark.trio
async def test_a_weir_whose_login_is_refused_does_not_start() -> None:
    """It would learn of no broker that comes or moves."""
    refusal = SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI"])
    cluster = Cluster(handlers={ApiKey.SASL_HANDSHAKE: refusal})
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, cluster, 0)
        address = cluster.nodes[0]
        config = msgspec.structs.replace(
            load(None, {"upstream": str(address)}), credentials=Credentials("PLAIN", "weir", PASSWORD)
        )
        with pytest.raises(ConfigError) as failure:
            await first_brokers(config, AddressBook(config.ports, lambda *_: None))
        nursery.cancel_scope.cancel()
    assert str(failure.value) == (
        f"cannot log in to the brokers: {address}: it has not enabled PLAIN, but GSSAPI: "
        "set upstream_sasl_mechanism"
    )


# Configuration


def settings(path: Path | str, mechanism: str = "PLAIN", username: str = "weir") -> Settings:
    assert mechanism in ("", "PLAIN", *SCRAM)
    return Settings(
        upstream_sasl_mechanism=mechanism,  # type: ignore[arg-type]  # asserted
        upstream_sasl_username=username,
        upstream_sasl_password_file=str(path),
    )


@pytest.mark.parametrize("content", ["p w=", "p w=\n", "p w=\r\n"])
def test_a_password_file_is_read_without_its_line_end(tmp_path: Path, content: str) -> None:
    path = tmp_path / "password"
    path.write_bytes(content.encode())
    found = credentials_of(settings(path))
    assert found == Credentials("PLAIN", "weir", "p w=")
    assert "p w=" not in repr(found)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (settings("", "PLAIN", ""), "mechanism is set without upstream_sasl_username and upstream_sasl_p"),
        (settings("x", "", "weir"), "upstream_sasl_username is set without upstream_sasl_mechanism"),
        (settings("x", "", ""), "password_file is set without upstream_sasl_mechanism and upstream_sasl_u"),
        (settings("x", username="a\0b"), "NUL"),
        (settings("/no/such/file"), "/no/such/file: cannot read it: No such file"),
    ],
)
def test_an_incomplete_login_configuration_is_refused(given: Settings, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        credentials_of(given)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"\n", "it is empty"),
        (b"secret\xff", "not UTF-8"),
        (b"secret\nsecret", "one line"),
        (b"secret\0", "one line"),
        (b"secret" * 20_000, "larger than"),
    ],
)
def test_an_invalid_password_file_is_refused_without_quoting_it(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as refusal:
        credentials_of(settings(path))
    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)
