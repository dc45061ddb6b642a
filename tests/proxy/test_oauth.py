"""Weir's own login by OAUTHBEARER: the client credentials grant (RFC 6749) and the exchange (RFC 7628)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing

from tests.kfake.in_trio import converse
from tests.proxy.login_broker import ADDRESS, Broker, accepting
from tests.proxy.token_endpoint import TokenEndpoint, token_endpoint
from weir.proxy.config.config import ConfigError, Settings
from weir.proxy.config.principals import Credentials, credentials_of
from weir.proxy.control.cluster.connection import LoginError, OwnConnection, QuestionError
from weir.proxy.control.cluster.login import log_in
from weir.proxy.run import single

TOKEN: Final = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="  # noqa: S105  # RFC 7628, section 4.1
SECRET: Final = "s3:cret/ä"  # noqa: S105  # a test's
FAILED: Final = b'{"status":"invalid_token"}'


def log_in_each(broker: Broker, credentials: Credentials, *at_s: float) -> None:
    """Log in at each of these times (s)."""
    clock = trio.testing.MockClock()

    async def main() -> None:
        for each_s in at_s:
            clock.jump(each_s - trio.current_time())
            ours, theirs = trio.testing.memory_stream_pair()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(converse, broker, theirs)
                async with OwnConnection(ours, ADDRESS, 5.0) as connection:
                    await log_in(connection, credentials)

    try:
        trio.run(main, clock=clock)
    except BaseExceptionGroup as group:
        raise single(group) from None


def at(endpoint: TokenEndpoint, scope: str = "", extensions: tuple[tuple[str, str], ...] = ()) -> Credentials:
    return Credentials("OAUTHBEARER", "weir id", SECRET, endpoint.url, scope, extensions)


def test_a_login_shows_a_token_that_is_fetched_again_before_it_expires() -> None:
    grant = {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 1000}
    broker = Broker(verify=accepting)
    with token_endpoint((200, grant), (200, {**grant, "access_token": "second"})) as endpoint:
        credentials = at(endpoint, "api://kafka/.default", (("logicalCluster", "lkc-1"),))
        log_in_each(broker, credentials, 0.0, 799.0, 801.0)
    head = b"n,,\x01auth=Bearer "
    first = head + TOKEN.encode() + b"\x01logicalCluster=lkc-1\x01\x01"
    assert broker.tokens == [first, first, head + b"second\x01logicalCluster=lkc-1\x01\x01"]
    assert len(endpoint.asked) == 2
    authorization, body = endpoint.asked[0]
    shown = base64.b64decode(authorization.removeprefix("Basic ")).decode()
    assert shown == "weir+id:s3%3Acret%2F%C3%A4"  # RFC 6749, appendix B
    assert body == "grant_type=client_credentials&scope=api%3A%2F%2Fkafka%2F.default"


def test_a_token_that_the_broker_rejects_is_answered_as_kip_255_says_and_not_used_again() -> None:
    def reject(token: bytes) -> bytes:
        if token == b"\x01":
            raise PermissionError
        return FAILED

    broker = Broker(verify=reject)
    with token_endpoint((200, {"access_token": TOKEN, "expires_in": 1000})) as endpoint:
        credentials = at(endpoint)
        for _ in range(2):
            with pytest.raises(LoginError, match="it does not accept 'weir id' with OAUTHBEARER"):
                log_in_each(broker, credentials, 0.0)
    assert [token[:1] for token in broker.tokens] == [b"n", b"\x01"] * 2
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize(
    ("status", "answer", "refused", "text"),
    [
        (
            401,
            {"error": "invalid_client", "error_description": "who?"},
            True,
            "status 401, invalid_client: who?",
        ),
        (503, "busy", False, "status 503: "),
        (302, {}, False, "status 302"),
        (200, {"token": "x"}, False, "its answer is no grant"),
        (200, {"access_token": "a\nb"}, False, "its token is no text of ASCII"),
    ],
)
def test_an_endpoint_that_gives_no_token_is_named_with_its_reason(
    status: int, answer: object, refused: bool, text: str
) -> None:
    with token_endpoint((status, answer)) as endpoint, pytest.raises(QuestionError) as failure:
        log_in_each(Broker(verify=accepting), at(endpoint), 0.0)
    assert isinstance(failure.value, LoginError) is refused
    assert f"kafka-1:9092: no token of {endpoint.url}: " in str(failure.value)
    assert text.rstrip(": ") in str(failure.value)
    assert "cret" not in str(failure.value)
    assert len(endpoint.asked) == 1, "no redirect is followed"


def test_an_endpoint_that_cannot_be_reached_is_no_wrong_login() -> None:
    with token_endpoint() as endpoint:
        pass
    with pytest.raises(QuestionError, match=r"no answer: .*refused") as failure:
        log_in_each(Broker(verify=accepting), at(endpoint), 0.0)
    assert not isinstance(failure.value, LoginError)


@pytest.mark.parametrize(
    ("mechanism", "url", "extensions", "text"),
    [
        ("OAUTHBEARER", "", "", "need one another"),
        ("PLAIN", "https://idp/token", "", "need one another"),
        ("OAUTHBEARER", "file:///etc/passwd", "", "must begin with https:// or http://"),
        ("OAUTHBEARER", "https://idp/token", "auth=x", "must be name=value"),
        ("OAUTHBEARER", "https://idp/token", "a-b=x", "must be name=value"),
    ],
)
def test_settings_of_oauthbearer_that_do_not_fit_are_refused(
    mechanism: str, url: str, extensions: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    settings = Settings(
        upstream_sasl_mechanism=mechanism,  # type: ignore[arg-type]  # one of them
        upstream_sasl_username="weir",
        upstream_sasl_password_file=str(tmp_path / "secret"),
        upstream_sasl_token_url=url,
        upstream_sasl_extensions=extensions,
    )
    with pytest.raises(ConfigError, match=text):
        credentials_of(settings)
