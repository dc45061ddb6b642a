"""Runs of the probe against a stub: outcomes, repetitions, and what is left behind."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.conformance.probe.stub_target import stub_target
from tests.kfake.threads import Brokers
from tests.wire.frames import framed
from weir.conformance.probe import runner, scratch
from weir.conformance.probe.case import CaseOutcome, Result
from weir.conformance.probe.link import ProbeTarget, UnreadableError, decode
from weir.conformance.probe.login import Login
from weir.conformance.probe.requests import Names
from weir.conformance.probe.runner import GoneError, ProbeOptions, ProbeRun
from weir.conformance.probe.scratch import TargetCluster, UnusableError
from weir.protocol.api import ApiKey
from weir.protocol.codec import codec
from weir.protocol.messages import (
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataResponse,
)
from weir.protocol.values import Message
from weir.protocol.versions import VersionRange

DELETE = "DeleteTopics/v2"
SHAPES = ("minimal", "maximal", "random-0")


@pytest.fixture
def stub() -> Iterator[Brokers]:
    with stub_target() as target:
        yield target


def run(stub: Brokers, *only: str, timeout_s: float = 5.0) -> ProbeRun:
    return ProbeRun(
        ProbeOptions(
            ProbeTarget("127.0.0.1", stub.ports[0], timeout_s), only=only, randoms=1, command="weir probe"
        )
    )


def results(stub: Brokers, *only: str, timeout_s: float = 5.0) -> list[Result]:
    return list(run(stub, *only, timeout_s=timeout_s).results())


def test_every_offered_version_gets_each_shape(stub: Brokers) -> None:
    found = results(stub, *(f"*/{shape}" for shape in SHAPES))
    versions = sum(len(list(offered)) for offered in stub.cluster.spoken.values())
    assert len(found) == versions * 3
    assert [result.message for result in found if not result.passed] == []
    assert {result.outcome for result in found} == {CaseOutcome.ANSWER, CaseOutcome.ERROR}


def test_the_scratch_topic_is_created_and_removed(stub: Brokers) -> None:
    results(stub, "ApiVersions")
    made = stub.cluster.messages_of(CreateTopicsRequest)
    removed = stub.cluster.messages_of(DeleteTopicsRequest)
    assert [topic.name for request in made for topic in request.topics] == removed[0].topic_names
    assert stub.cluster.topics == {}


@pytest.mark.parametrize("closes", [False, True])
def test_a_target_is_probed_whose_newest_metadata_cannot_be_read(stub: Brokers, closes: bool) -> None:
    """librdkafka's mock cluster sends a byte too many from version 9 on; Weir in front of it closes."""
    right = stub.cluster.handler(ApiKey.METADATA)

    def wrong(request: Message, version: int, _now_ms: int) -> Message | bytes | None:
        response = right(request, version, 0)
        assert isinstance(response, MetadataResponse)
        too_long = None if closes else codec(MetadataResponse, version).encode(response) + b"\0"
        return too_long if version >= 8 else response

    stub.cluster.handlers[ApiKey.METADATA] = wrong
    failed = {result.case for result in results(stub, "*/minimal") if not result.passed}
    assert failed == {"Metadata/v8/minimal", "Metadata/v9/minimal"}


@pytest.mark.parametrize("unreadable", [False, True])
def test_the_scratch_topic_is_removed_if_the_caller_stops(stub: Brokers, unreadable: bool) -> None:
    found = run(stub).results()
    next(found)
    assert stub.cluster.topics
    if unreadable:
        stub.cluster.handlers[ApiKey.METADATA] = lambda *_: b"junk"
    found.close()
    assert stub.cluster.topics == {}


def test_topics_that_the_target_should_only_have_validated_are_removed(stub: Brokers) -> None:
    def create(request: Message, *_: int) -> Message:
        assert isinstance(request, CreateTopicsRequest)
        for topic in request.topics:
            stub.cluster.add(topic.name)
        return CreateTopicsResponse()

    stub.cluster.handlers[ApiKey.CREATE_TOPICS] = create
    stub.cluster.add("mine")
    results(stub, "CreateTopics/v5")
    assert list(stub.cluster.topics) == ["mine"]


def test_a_closed_connection_fails_the_case_and_no_other(stub: Brokers) -> None:
    usual = stub.cluster.handler(ApiKey.DELETE_TOPICS)
    stub.cluster.handlers[ApiKey.DELETE_TOPICS] = lambda request, version, _now_ms: (
        None if version == 2 else usual(request, version, 0)
    )
    failed = [result for result in results(stub, "DeleteTopics/*/minimal") if not result.passed]
    assert {(result.version, result.outcome) for result in failed} == {(2, CaseOutcome.CLOSED)}
    assert failed[0].message.startswith("The target closes the connection without a response.")
    assert failed[0].repeat == "weir probe --only 'DeleteTopics/v2/minimal' --seed 0"


def test_a_response_that_does_not_decode_is_unreadable(stub: Brokers) -> None:
    usual = stub.cluster.handler(ApiKey.DELETE_TOPICS)
    stub.cluster.handlers[ApiKey.DELETE_TOPICS] = lambda request, version, _now_ms: (
        b"\0" if version == 2 else usual(request, version, 0)
    )
    (found, *_) = results(stub, DELETE)
    assert (found.outcome, found.passed) == (CaseOutcome.UNREADABLE, False)
    assert "does not decode at version 2" in found.message
    assert "throttle_time_ms: The message ends within a field" in found.message
    assert "[00]" in found.message


def test_tagged_fields_in_the_header_of_api_versions_are_named(stub: Brokers) -> None:
    usual = stub.cluster.handler(ApiKey.API_VERSIONS)

    def answer(request: Message, version: int, _now_ms: int) -> Message | bytes | None:
        message = usual(request, version, 0)
        assert isinstance(message, ApiVersionsResponse)
        return b"\0" + codec(ApiVersionsResponse, version).encode(message) if version == 3 else message

    stub.cluster.handlers[ApiKey.API_VERSIONS] = answer
    (found,) = results(stub, "ApiVersions/v3/minimal")
    assert "header of an ApiVersions response" in found.message


def test_error_35_in_a_newer_form_than_version_0_is_named() -> None:
    refused = b"\0\x23\1\0\0\0\0\0"  # error 35, no APIs, throttle time 0, no tags: version 3
    with pytest.raises(UnreadableError, match="error 35 in another form than version 0"):
        decode(bytes(4) + refused, ApiKey.API_VERSIONS, 0, 0)


def test_a_response_that_ends_within_its_header_is_unreadable() -> None:
    for header in (bytes(4), bytes(4) + b"\1\0\x09"):
        with pytest.raises(UnreadableError, match="header"):
            decode(header, ApiKey.METADATA, 9, 0)


def test_responses_in_another_order_are_named(stub: Brokers) -> None:
    usual = stub.answer

    def answer(connection: socket.socket, frame: bytes, node_id: int) -> None:
        more = b""
        with suppress(BlockingIOError):
            more = connection.recv(1 << 16, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        if not more:
            usual(connection, frame, node_id)
            return
        connection.sendall(framed(more[8:12]) + framed(frame[8:12]))
        raise ConnectionAbortedError

    stub.answer = answer  # type: ignore[method-assign]  # for this stub alone
    (found,) = results(stub, "Metadata/v9/two-at-once")
    assert "responses come in the order of the requests" in found.message


def test_a_failure_of_a_malformed_request_describes_the_request(stub: Brokers) -> None:
    stub.cluster.handlers[ApiKey.METADATA] = lambda *_: b"junk"
    failed = [found for found in results(stub, "Metadata/*/byte-by-byte/*") if not found.passed]
    assert failed
    for found in failed:
        assert found.message.startswith("The well-formed request comes in segments of one byte. The target")


def test_error_codes_that_pass_are_waited_for(stub: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "POLL_S", 0.001)
    codes = [15, 14, 3]
    stub.cluster.handlers[ApiKey.DELETE_TOPICS] = lambda *_: answered(codes.pop(0) if codes else 0)
    found = results(stub, f"{DELETE}/minimal")
    assert [result.summary for result in found] == ["error 3"]


def test_error_codes_that_do_not_pass_are_waited_for_once(
    stub: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "REPEAT_S", 0.0)
    monkeypatch.setattr(runner, "POLL_S", 0.001)
    stub.cluster.handlers[ApiKey.DELETE_TOPICS] = lambda *_: answered(16)
    assert [result.summary for result in results(stub, *(f"{DELETE}/{shape}" for shape in SHAPES))] == [
        "error 16"
    ] * 3
    assert stub.cluster.questions.count((ApiKey.DELETE_TOPICS, 2)) <= 4


@pytest.mark.parametrize(("code", "version"), [(-1, 4), (89, 4)])
def test_an_exception_in_the_server_fails_and_so_does_error_89_in_an_old_version(
    stub: Brokers, code: int, version: int
) -> None:
    stub.cluster.handlers[ApiKey.DELETE_TOPICS] = lambda *_: answered(code)
    (found, *_) = results(stub, f"DeleteTopics/v{version}")
    assert (found.passed, found.errors) == (False, [code])
    assert f"error {code} (" in found.message


def test_a_target_that_stops_ends_the_run(stub: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GONE_S", 0.0)
    probe = run(stub)
    found = probe.results()
    next(found)
    stub.stop()
    with pytest.raises(GoneError, match=r"stopped at the case Metadata/v0/maximal.*To repeat it: weir probe"):
        list(found)
    assert [line.split(":")[0] for line in probe.cluster.left] == [
        f"the topic {probe.names.topic} may be left"
    ]


def test_a_target_that_freezes_ends_the_run(stub: Brokers) -> None:
    probe = run(stub, timeout_s=0.5)
    found = probe.results()
    next(found)
    stub.cluster.handlers = dict.fromkeys(stub.cluster.handlers, lambda *_: stub.wait_for_stop())
    with pytest.raises(GoneError, match="no response came in time"):
        list(found)


def test_apis_and_versions_without_cases_are_named(stub: Brokers) -> None:
    stub.cluster.spoken = {
        **stub.cluster.spoken,
        ApiKey.CONTROLLED_SHUTDOWN: VersionRange(0, 3),
        ApiKey.API_VERSIONS: VersionRange(0, 99),
        9_999: VersionRange(0, 1),
    }
    probe = run(stub, *(f"ApiVersions/v0/{shape}" for shape in SHAPES))
    assert len(list(probe.results())) == 3
    assert probe.notes == [
        "not probed with well-formed requests, which could do harm: ControlledShutdown",
        "not probed, as Weir's schemas lack it: ApiVersions, versions 6-99",
        "not probed, as Weir's schemas lack it: API 9999, versions 0-1",
    ]


def test_a_target_may_offer_every_version_that_the_field_can_hold(stub: Brokers) -> None:
    stub.cluster.spoken[ApiKey.API_VERSIONS] = VersionRange(-32768, 32767)
    found = results(stub, "ApiVersions/version-*", "DeleteTopics/version-*")
    assert [result.case for result in found] == ["DeleteTopics/version-below", "DeleteTopics/version-above"]


def test_invented_apis_with_every_version_are_counted_in_bounded_time(
    stub: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: VersionRange) -> Iterator[int]:
        assert self.max < 1000, "iterates over invented versions"
        return iter(range(self.min, self.max + 1))

    monkeypatch.setattr(VersionRange, "__iter__", refuse)
    stub.cluster.spoken |= {api_key: VersionRange(0, 32767) for api_key in range(1_000, 1_030)}
    probe = run(stub, "ApiVersions/v0/minimal")
    assert [result.passed for result in probe.results()] == [True]
    assert len(probe.notes) == runner.LACKING_MAX + 1
    assert probe.notes[0] == "not probed, as Weir's schemas lack it: API 1000, versions 0+"
    assert probe.notes[-1] == "not probed, as Weir's schemas lack them: 10 more APIs"


@pytest.mark.parametrize("login", [None, Login("alice", "secret")])
def test_sasl_requests_go_to_targets_with_newer_versions_and_without_list_groups(login: Login | None) -> None:
    offered: dict[int, VersionRange] = {
        ApiKey.SASL_HANDSHAKE: VersionRange(-9, 99),
        ApiKey.SASL_AUTHENTICATE: VersionRange(0, 99),
    }
    groups: list[dict[int, VersionRange]] = [
        {},
        {ApiKey.LIST_GROUPS: VersionRange(0, 99)},
        {ApiKey.LIST_GROUPS: VersionRange(98, 99)},
    ]
    for number, more in enumerate(groups):
        target = ProbeTarget("127.0.0.1", 1)
        cluster = TargetCluster(target, login, offered | more)
        cases = list(runner.sasl_of(cluster, Names.fresh(), ProbeOptions(target, login)))
        assert {case.version for case in cases if case.api_key == ApiKey.SASL_AUTHENTICATE} == {0, 1, 2}
        asking = [case.name for case in cases if "/sasl-authenticated-v" in case.name]
        assert len(asking) == (3 if login and number == 1 else 0)


def test_a_target_that_refuses_the_scratch_topic_cannot_be_probed(stub: Brokers) -> None:
    result = CreateTopicsResponse.CreatableTopicResult(name="x", error_code=29)
    stub.cluster.handlers[ApiKey.CREATE_TOPICS] = lambda *_: CreateTopicsResponse(topics=[result])
    with pytest.raises(UnusableError, match="TOPIC_AUTHORIZATION_FAILED"):
        results(stub)


def test_a_server_that_closes_at_once_may_need_tls_or_a_user(stub: Brokers) -> None:
    stub.cluster.handlers[ApiKey.METADATA] = lambda *_: None
    with pytest.raises(
        UnusableError, match="does this listener need --set upstream_tls=FILE or upstream_sasl_username"
    ):
        results(stub)


def test_a_target_whose_metadata_does_not_decode_is_probed_without_the_topic(stub: Brokers) -> None:
    stub.cluster.handlers[ApiKey.METADATA] = lambda *_: b"junk"
    probe = run(stub, "Metadata/v9/minimal", "ApiVersions/v3/minimal")
    found = {result.case: result.passed for result in probe.results()}
    assert found == {"Metadata/v9/minimal": False, "ApiVersions/v3/minimal": True}
    assert any("without the scratch topic: the response does not decode" in note for note in probe.notes)


def test_a_target_that_creates_no_topics_is_probed_without_the_topic(
    stub: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "AUTOMATIC_S", 0.0)
    for key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS):
        del stub.cluster.spoken[key]
    probe = run(stub, "ApiVersions/v3/minimal")
    assert [result.passed for result in probe.results()] == [True]
    assert any("without the scratch topic: the target offers no CreateTopics" in note for note in probe.notes)


def test_topics_of_a_target_without_topic_apis_are_created_by_metadata(stub: Brokers) -> None:
    for key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS):
        del stub.cluster.spoken[key]
    usual = stub.cluster.handler(ApiKey.METADATA)
    probe = run(stub, *(f"ApiVersions/v0/{shape}" for shape in SHAPES))

    def metadata(request: Message, version: int, _now_ms: int) -> Message | bytes | None:
        stub.cluster.add(probe.names.topic)
        return usual(request, version, 0)

    stub.cluster.handlers[ApiKey.METADATA] = metadata
    assert len(list(probe.results())) == 3
    assert probe.cluster.left == [f"the target has no DeleteTopics: remove {probe.names.topic}"]


def answered(code: int) -> Message:
    result = DeleteTopicsResponse.DeletableTopicResult(name="x", error_code=code)
    return DeleteTopicsResponse(responses=[result])
