"""No planted secret is in redacted bytes, sizes stay, and all else is unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.capture.conversation import Parts, redacted
from tests.wire.frames import framed, request, response
from weir.conformance.capture import credentials
from weir.conformance.capture.redaction import FRAME_BYTES_MAX, IN_FLIGHT_MAX, WHOLE_BYTES_MAX, Redaction
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side
from weir.protocol import ApiKey, codec, is_flexible, messages, response_header_version, versions
from weir.protocol.values import Message, request_type, response_type

M: Any = messages
SECRET = b"hunter2-the-planted-secret"
TEXT = SECRET.decode()
CHUNKS = (1, 3, 13, 1 << 20)


def _configs(config: Any) -> list[Any]:
    return [
        config(name="ssl.keystore.password", value=TEXT),
        config(name="listener.name.a.PLAIN.SASL.JAAS.config", value=TEXT),
        config(name="retention.ms", value="4711"),
    ]


def _topology(message: Any) -> Any:
    """The topology of a Streams group, whose internal topics have configs."""
    configs = [
        message.KeyValue(key=one.name, value=one.value)
        for one in _configs(M.AlterConfigsRequest.AlterableConfig)
    ]
    topics = [message.TopicInfo(name="t", topic_configs=configs)]
    part = message.Subtopology(
        subtopology_id="0", state_changelog_topics=topics, repartition_source_topics=topics
    )
    return message.Topology(subtopologies=[part])


def _requests() -> dict[ApiKey, Message]:
    """A request of every API whose requests may contain credentials."""
    alter, incremental, create = (
        M.AlterConfigsRequest,
        M.IncrementalAlterConfigsRequest,
        M.CreateTopicsRequest,
    )
    scram, streams = M.AlterUserScramCredentialsRequest, M.StreamsGroupHeartbeatRequest
    return {
        ApiKey.STREAMS_GROUP_HEARTBEAT: streams(topology=_topology(streams)),
        ApiKey.SASL_AUTHENTICATE: M.SaslAuthenticateRequest(auth_bytes=SECRET),
        ApiKey.RENEW_DELEGATION_TOKEN: M.RenewDelegationTokenRequest(hmac=SECRET),
        ApiKey.EXPIRE_DELEGATION_TOKEN: M.ExpireDelegationTokenRequest(hmac=SECRET),
        ApiKey.ENVELOPE: M.EnvelopeRequest(request_data=SECRET, request_principal=SECRET),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: scram(
            upsertions=[scram.ScramCredentialUpsertion(name="u", salt=SECRET, salted_password=SECRET)]
        ),
        ApiKey.ALTER_CONFIGS: alter(
            resources=[alter.AlterConfigsResource(resource_name="r", configs=_configs(alter.AlterableConfig))]
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental(
            resources=[
                incremental.AlterConfigsResource(
                    resource_name="r", configs=_configs(incremental.AlterableConfig)
                )
            ]
        ),
        ApiKey.CREATE_TOPICS: create(
            topics=[create.CreatableTopic(name="t", configs=_configs(create.CreatableTopicConfig))]
        ),
    }


def _responses() -> dict[ApiKey, Message]:
    """A response of every API whose responses may contain credentials."""
    describe, create, tokens = (
        M.DescribeConfigsResponse,
        M.CreateTopicsResponse,
        M.DescribeDelegationTokenResponse,
    )
    snapshot = M.FetchSnapshotResponse
    result = describe.DescribeConfigsResourceResult
    streams = M.StreamsGroupDescribeResponse
    configs = _configs(result)
    configs[0].synonyms = _configs(describe.DescribeConfigsSynonym)
    return {
        ApiKey.SASL_AUTHENTICATE: M.SaslAuthenticateResponse(auth_bytes=SECRET),
        ApiKey.CREATE_DELEGATION_TOKEN: M.CreateDelegationTokenResponse(hmac=SECRET),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: tokens(tokens=[tokens.DescribedDelegationToken(hmac=SECRET)]),
        ApiKey.ENVELOPE: M.EnvelopeResponse(response_data=SECRET),
        ApiKey.STREAMS_GROUP_DESCRIBE: streams(groups=[streams.DescribedGroup(topology=_topology(streams))]),
        ApiKey.DESCRIBE_CONFIGS: describe(results=[describe.DescribeConfigsResult(configs=configs)]),
        ApiKey.CREATE_TOPICS: create(
            topics=[create.CreatableTopicResult(name="t", configs=_configs(create.CreatableTopicConfigs))]
        ),
        ApiKey.FETCH_SNAPSHOT: snapshot(
            topics=[snapshot.TopicSnapshot(partitions=[snapshot.PartitionSnapshot(unaligned_records=SECRET)])]
        ),
    }


def _encodable(api_key: ApiKey, message: Message, version: int) -> bool:
    """Whether this version has the field of the secret: older ones leave it out, or refuse it."""
    try:
        return SECRET in codec(type(message), version).encode(message)
    except Exception:  # noqa: BLE001  # the version cannot express the message
        return False


def test_every_api_with_credentials_has_a_planted_secret_in_these_tests() -> None:
    assert set(_requests()) == set(credentials.REQUESTS)
    assert set(_responses()) == set(credentials.RESPONSES)


@pytest.mark.parametrize("api_key", credentials.REQUESTS, ids=lambda key: key.name)
def test_credentials_in_requests_become_filler(api_key: ApiKey) -> None:
    message, tried = _requests()[api_key], 0
    for version in versions(api_key) or ():
        if not _encodable(api_key, message, version):
            continue
        sent = request(message, version)
        for chunk in CHUNKS:
            found = redacted(Redaction(), [(Side.CLIENT, sent * 2)], chunk)[Side.CLIENT]
            _check(sent * 2, found)
            assert found.count(b"4711") == sent.count(b"4711") * 2  # other configs stay
            start = found.index(b"app") + len(b"app") + is_flexible(api_key, version)
            codec(request_type(api_key), version).decode(found, start, len(sent))
        tried += 1
    assert tried


@pytest.mark.parametrize("api_key", credentials.RESPONSES, ids=lambda key: key.name)
def test_credentials_in_responses_become_filler(api_key: ApiKey) -> None:
    message, tried = _responses()[api_key], 0
    for version in versions(api_key) or ():
        if not _encodable(api_key, message, version):
            continue
        asked = request(request_type(api_key)(), version)
        sent = response(message, version)
        parts: Parts = [(Side.CLIENT, asked), (Side.SERVER, sent)]
        for chunk in CHUNKS:
            found = redacted(Redaction(), parts, chunk)[Side.SERVER]
            _check(sent, found)
            start = 8 + (response_header_version(api_key, version) > 0)
            codec(response_type(api_key), version).decode(found, start)
        tried += 1
    assert tried


def _check(sent: bytes, found: bytes) -> None:
    assert len(found) == len(sent)
    assert SECRET in sent
    assert SECRET not in found
    assert sent[:8] == found[:8]


PLAIN = b"\0user\0" + SECRET
TOKENS = {
    "PLAIN": [PLAIN],
    "SCRAM-SHA-256": [b"n,,n=user,r=" + SECRET, b"c=biws,r=x,p=" + SECRET],
    "SCRAM-SHA-512": [b"n,,n=user,r=" + SECRET, b"c=biws,r=x,p=" + SECRET],
    "OAUTHBEARER": [b"n,,\x01auth=Bearer " + SECRET + b"\x01\x01", b"\x01"],
    "GSSAPI": [b"\x60\x82" + SECRET, b"", b"\x05\x04" + SECRET],
    "CUSTOM": [SECRET, b"\0\x03\0\0" + SECRET, b"\0\0\0\0\0\0\0\0\0\0" + SECRET],
}


@pytest.mark.parametrize("mechanism", TOKENS)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_bare_sasl_tokens_become_filler_until_the_first_request(mechanism: str, chunk: int) -> None:
    handshake = request(M.SaslHandshakeRequest(mechanism=mechanism), 0, 1)
    metadata = request(M.MetadataRequest(), 1, 2)
    answer = response(M.MetadataResponse(cluster_id="c"), 1, 2)
    shaken = response(M.SaslHandshakeResponse(mechanisms=[mechanism]), 0, 1)
    parts: Parts = [(Side.CLIENT, handshake), (Side.SERVER, shaken)]
    for token in TOKENS[mechanism]:
        parts += [(Side.CLIENT, framed(token)), (Side.SERVER, framed(b"v=" + SECRET))]
    parts += [(Side.CLIENT, metadata), (Side.SERVER, answer)]
    found = redacted(Redaction(), parts, chunk)
    for side in Side:
        sent = b"".join(data for by, data in parts if by is side)
        assert len(found[side]) == len(sent)
        assert SECRET not in found[side]
    assert found[Side.CLIENT].startswith(handshake)
    assert found[Side.CLIENT].endswith(metadata)
    assert found[Side.SERVER].startswith(shaken)
    assert found[Side.SERVER].endswith(answer)


def test_a_plain_token_that_looks_like_a_request_becomes_filler() -> None:
    handshake = request(M.SaslHandshakeRequest(mechanism="PLAIN"), 0, 1)
    token = request(M.MetadataRequest(topics=[M.MetadataRequest.MetadataRequestTopic(name=TEXT)]), 0, 2)
    found = redacted(Redaction(), [(Side.CLIENT, handshake + token)])[Side.CLIENT]
    assert found == handshake + token[:4] + b"x" * (len(token) - 4)


def test_a_malformed_request_with_credentials_and_one_that_is_cut_become_filler() -> None:
    whole = request(M.SaslAuthenticateRequest(auth_bytes=SECRET), 2)
    malformed = [framed(part) for end in range(1, 60) for part in (whole[4:-end], whole[4:] + SECRET[:end])]
    for leaked, frames in ((6, malformed), (3, [whole[:end] for end in range(len(whole))])):
        for frame in frames:
            found = redacted(Redaction(), [(Side.CLIENT, frame)])[Side.CLIENT]
            assert len(found) == len(frame)
            assert SECRET[:leaked] not in found


@pytest.mark.parametrize(
    ("api_key", "version"), [(ApiKey.SASL_AUTHENTICATE, 99), (32000, 0), (-1, 0), (0x6082, 5)]
)
def test_requests_of_unknown_apis_and_versions_with_credentials_become_filler(
    api_key: int, version: int
) -> None:
    head = api_key.to_bytes(2, "big", signed=api_key < 0) + version.to_bytes(2, "big") + b"\0\0\0\7"
    redaction = Redaction()
    parts: Parts = [(Side.CLIENT, framed(head + SECRET)), (Side.SERVER, framed(b"\0\0\0\7" + SECRET))]
    found = redacted(redaction, parts)
    assert found[Side.CLIENT] == framed(head + b"x" * len(SECRET))
    assert found[Side.SERVER] == framed(b"\0\0\0\7" + b"x" * len(SECRET))
    assert redaction.filled == 2


def test_a_frame_with_credentials_above_the_bound_becomes_filler_without_being_held() -> None:
    whole = request(M.SaslAuthenticateRequest(auth_bytes=SECRET * 100_000), 2)
    assert len(whole) > WHOLE_BYTES_MAX
    redaction, held, found = Redaction(), 0, b""
    list(redaction.feed(Opened(0, 1, "", "")))
    for start in range(0, len(whole), 50_000):
        part = whole[start : start + 50_000]
        found += b"".join(
            e.data for e in redaction.feed(Bytes(0, 2, Side.CLIENT, part)) if isinstance(e, Bytes)
        )
        held = max(held, start + len(part) - len(found))
    assert held == 0
    assert found == whole[:12] + b"x" * (len(whole) - 12)


def test_a_negative_length_turns_all_that_follows_into_filler() -> None:
    found = redacted(Redaction(), [(Side.CLIENT, b"\xff\xff\xff\xff" + SECRET)])[Side.CLIENT]
    assert found == b"\xff\xff\xff\xff" + b"x" * len(SECRET)


def test_a_response_without_a_request_becomes_filler() -> None:
    found = redacted(Redaction(), [(Side.SERVER, framed(b"\0\0\0\7" + SECRET))])[Side.SERVER]
    assert found == framed(b"\0\0\0\7" + b"x" * len(SECRET))


def test_a_token_under_a_correlation_id_that_other_requests_share_becomes_filler() -> None:
    produce = request(M.ProduceRequest(acks=0), 3, 7)  # it gets no response
    create = request(M.CreateDelegationTokenRequest(), 1, 7)
    answer = response(M.CreateDelegationTokenResponse(hmac=SECRET), 1, 7)
    found = redacted(Redaction(), [(Side.CLIENT, produce + create), (Side.SERVER, answer)])[Side.SERVER]
    assert len(found) == len(answer)
    assert SECRET not in found


def test_requests_without_responses_are_forgotten_at_the_bound() -> None:
    produce = [request(M.ProduceRequest(acks=0), 3, n) for n in range(IN_FLIGHT_MAX + 10)]
    redaction = Redaction()
    redacted_bytes = b""
    list(redaction.feed(Opened(0, 1, "", "")))
    for frame in produce:
        redacted_bytes += b"".join(
            e.data for e in redaction.feed(Bytes(0, 2, Side.CLIENT, frame)) if isinstance(e, Bytes)
        )
    assert redacted_bytes == b"".join(produce)
    assert len(redaction._connections[0]._in_flight) == IN_FLIGHT_MAX


def _all(redaction: Redaction, events: list[Event]) -> list[Event]:
    return [out for event in events for out in redaction.feed(event)]


def test_bytes_behind_a_gap_are_dropped_up_to_the_next_request_and_its_response() -> None:
    login = request(M.SaslAuthenticateRequest(auth_bytes=SECRET), 2, 1)
    ask = request(M.MetadataRequest(), 1, 2)
    late = response(M.SaslAuthenticateResponse(auth_bytes=SECRET), 2, 1)
    answer = response(M.MetadataResponse(), 1, 2)
    client, server = Side.CLIENT, Side.SERVER
    found = _all(
        Redaction(),
        [
            Opened(0, 1, "", ""),
            Bytes(0, 2, client, login[:20]),
            Dropped(0, 3, client, 5),
            Bytes(0, 4, client, login[25:]),
            Bytes(0, 5, server, late),
            Bytes(0, 6, client, ask),
            Bytes(0, 7, server, late),
            Bytes(0, 8, server, answer),
        ],
    )
    assert found == [
        Opened(0, 1, "", ""),
        Bytes(0, 3, client, login[:12] + b"x" * 8),
        Dropped(0, 3, client, 5),
        Dropped(0, 4, client, len(login) - 25),
        Dropped(0, 5, server, len(late)),
        Bytes(0, 6, client, ask),
        Dropped(0, 7, server, len(late)),
        Bytes(0, 8, server, answer),
    ]


def test_a_connection_without_a_beginning_starts_at_a_request() -> None:
    ask = request(M.MetadataRequest(), 1, 2)
    found = _all(Redaction(), [Bytes(5, 1, Side.CLIENT, SECRET), Bytes(5, 2, Side.CLIENT, ask)])
    assert found == [Dropped(5, 1, Side.CLIENT, len(SECRET)), Bytes(5, 2, Side.CLIENT, ask)]


def test_zeros_behind_a_gap_are_not_taken_for_a_request() -> None:
    zeros = b"\0\x58" + bytes(40)  # as in a batch: the head of a request of 5.5 MB
    login = request(M.SaslAuthenticateRequest(auth_bytes=SECRET), 1)
    for first in (request(M.MetadataRequest(), 1), request(M.MetadataRequest(), 1, client_id=None)):
        found = _all(
            Redaction(),
            [
                Opened(5, 1, "c:1", "s:2"),
                Bytes(5, 2, Side.CLIENT, first),
                Dropped(5, 3, Side.CLIENT, 10),
                Bytes(5, 4, Side.CLIENT, zeros),
                Bytes(5, 5, Side.CLIENT, login),
            ],
        )
        assert found[3] == Dropped(5, 4, Side.CLIENT, len(zeros))
        assert not any(SECRET in event.data for event in found if isinstance(event, Bytes))


def test_a_request_behind_a_gap_with_an_impossible_length_is_not_recognized() -> None:
    head = (FRAME_BYTES_MAX + 1).to_bytes(4, "big") + b"\0\3\0\1\0\0\0\1\xff\xff"
    assert _all(Redaction(), [Bytes(5, 1, Side.CLIENT, head)]) == [Dropped(5, 1, Side.CLIENT, len(head))]


def test_held_bytes_come_before_the_end_of_their_side_and_the_state_is_forgotten() -> None:
    redaction = Redaction()
    found = _all(
        redaction,
        [
            Opened(0, 1, "", ""),
            Bytes(0, 2, Side.CLIENT, b"\0\0\0\x20\0"),
            Closed(0, 3, Side.CLIENT),
            Closed(0, 4, Side.SERVER),
        ],
    )
    assert found[1:3] == [Bytes(0, 3, Side.CLIENT, b"\0\0\0\x20x"), Closed(0, 3, Side.CLIENT)]
    assert not redaction._connections


def test_a_token_of_the_server_with_the_handshakes_correlation_id_becomes_filler() -> None:
    """The server leaves the handshake unanswered, so the pairs of requests and responses are not known."""
    shake = request(M.SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0, 7)
    login = request(M.SaslAuthenticateRequest(auth_bytes=b"n,,n=u"), 0, 7)
    answer = response(M.SaslAuthenticateResponse(auth_bytes=SECRET), 0, 7)
    found = redacted(Redaction(), [(Side.CLIENT, shake + login), (Side.SERVER, answer)])
    assert SECRET not in found[Side.SERVER]
    assert len(found[Side.SERVER]) == len(answer)
