"""A broker may not serve a topic yet that it has just created."""

from __future__ import annotations

from typing import Self

import pytest

from bench import broker
from bench.broker import BrokerError, NotReadyError, ask, ask_until_ready
from bench.frames import Request, metadata
from weir.protocol import ErrorCode, Message, codec
from weir.protocol.framing import LENGTH
from weir.protocol.messages import MetadataResponse

VERSION = 12


class Connection:
    """To a broker that answers with one error code after another."""

    def __init__(self, codes: list[ErrorCode]) -> None:
        self.codes = codes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def answer(self) -> bytes:
        topic = MetadataResponse.MetadataResponseTopic(name="t", error_code=self.codes.pop(0))
        content = (
            LENGTH.pack(1) + b"\0" + codec(MetadataResponse, VERSION).encode(MetadataResponse(topics=[topic]))
        )
        return LENGTH.pack(len(content)) + content


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[ErrorCode]:
    """What the broker will answer."""
    answers: list[ErrorCode] = []
    monkeypatch.setattr(broker, "connect", lambda _port, _entry: Connection(answers))
    monkeypatch.setattr(broker, "exchange", lambda connection, _request: connection.answer())
    return answers


def asked(request: Request, timeout_s: float) -> Message:
    return ask_until_ready(9092, request, timeout_s)


def test_a_request_is_retried_until_its_new_topic_has_a_leader(codes: list[ErrorCode]) -> None:
    codes += [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE]
    answer = asked(metadata("t"), timeout_s=60)
    assert isinstance(answer, MetadataResponse)
    assert codes == []


def test_retries_for_a_new_topic_end_with_an_error_after_the_timeout(codes: list[ErrorCode]) -> None:
    codes += [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    with pytest.raises(NotReadyError, match="METADATA v12: UNKNOWN_TOPIC_OR_PARTITION"):
        asked(metadata("t"), timeout_s=-1)
    assert len(codes) == 1


def test_errors_other_than_a_missing_topic_are_raised_without_a_retry(codes: list[ErrorCode]) -> None:
    codes += [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE]
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        asked(metadata("t"), timeout_s=60)
    assert codes == [ErrorCode.NONE]


def test_a_request_without_retries_for_a_new_topic_raises_notreadyerror(codes: list[ErrorCode]) -> None:
    codes += [ErrorCode.LEADER_NOT_AVAILABLE]
    with pytest.raises(NotReadyError):
        ask(9092, metadata("t"))
