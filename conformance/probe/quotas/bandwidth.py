"""Byte rates: each version of Produce and Fetch, from a client that was idle to its first throttle time."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from weir.conformance.probe.quotas import judgement, requests
from weir.conformance.probe.quotas.client import ProbeClient
from weir.conformance.probe.quotas.jobs import ClientQuota, Job, QuotaFinding, checks_of, has_throttle_field
from weir.conformance.quota_names import FETCH, PRODUCE
from weir.protocol.api import ApiKey
from weir.protocol.messages import FetchResponse, ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weir.conformance.probe.quotas.client import Answer, Asked
    from weir.conformance.probe.quotas.jobs import Stage
    from weir.protocol.values import Message

RATE: Final = 1000.0
"""Quota (bytes/s). The first 10,000 bytes of an idle client pass at once."""
SMALL_BYTES: Final = 100
LARGE_BYTES: Final = 12_900
"""Length (bytes) of the record that exceeds the quota: 13,000 bytes with its request, and a small one before,
mean a throttle time of 2 to 3.5 s.
"""
FETCH_BYTES: Final = 6500
"""Length (bytes) of the records in each of two fetches: one is below the quota, both together exceed it."""
UNLIMITED: Final = "other"
METADATA_VERSION: Final = 1


def jobs(stage: Stage) -> Iterator[Job]:
    """Return a job for each version of Produce and Fetch, and one for acks=0."""
    for version in stage.of(ApiKey.PRODUCE):
        yield _job(stage, "produce", ApiKey.PRODUCE, version, PRODUCE)
    for version in stage.of(ApiKey.FETCH):
        yield _job(stage, "fetch", ApiKey.FETCH, version, FETCH)
    if stage.of(ApiKey.PRODUCE):
        yield _unanswered_job(stage, stage.of(ApiKey.PRODUCE).max)


def _job(stage: Stage, kind: str, api_key: ApiKey, version: int, key: str) -> Job:
    names = ["below-quota", "throttle-field", "mute", "own-connection", "other-client"]
    if not has_throttle_field(api_key, version):
        names.remove("throttle-field")
    if api_key is ApiKey.FETCH and stage.prompt:
        names += ["no-records", "no-records-elsewhere"]
    client_id = f"{stage.prefix}{kind}-v{version}"
    return Job(
        checks=checks_of(f"quotas/{kind}", api_key, version, names),
        quotas=(ClientQuota(client_id, key, RATE),),
        run=partial(
            _run, client_id=client_id, stem=f"quotas/{kind}/v{version}", api_key=api_key, version=version
        ),
    )


def _run(stage: Stage, client_id: str, stem: str, api_key: ApiKey, version: int) -> Iterator[QuotaFinding]:
    small, large = _messages(stage, api_key, version)
    with (
        ProbeClient(stage.leader, client_id) as client,
        ProbeClient(stage.leader, client_id) as own,
        ProbeClient(stage.leader, stage.prefix + UNLIMITED) as other,
    ):
        own.ask(requests.brokers(), ApiKey.METADATA, METADATA_VERSION)
        first = client.ask(small(), api_key, version)
        yield _below(f"{stem}/below-quota", first)
        throttled_asked = client.send(large(), api_key, version)
        if stage.prompt:
            throttled = client.receive(throttled_asked)
            next_asked = client.send(requests.brokers(), ApiKey.METADATA, METADATA_VERSION)
        own_answer = own.ask(requests.brokers(), ApiKey.METADATA, METADATA_VERSION)
        other_answer = other.ask(small(), api_key, version)
        if api_key is ApiKey.FETCH and stage.prompt:
            elsewhere = own.ask(small(), api_key, version)
            yield QuotaFinding(f"{stem}/no-records-elsewhere", _without_records(elsewhere))
        if not stage.prompt:
            throttled = client.receive(throttled_asked)
            next_asked = client.send(requests.brokers(), ApiKey.METADATA, METADATA_VERSION)
        following = client.receive(next_asked)
    charged = _charge(first) + (_charge(throttled) if api_key is ApiKey.PRODUCE else _charge(first))
    throttle_ms: float = throttled.throttle_ms
    if has_throttle_field(api_key, version):
        told = judgement.byte_throttle(throttled.throttle_ms, charged, RATE, stage.window)
        yield QuotaFinding(f"{stem}/throttle-field", told, errors_of(throttled))
    else:  # the response cannot tell the throttle time
        throttle_ms = (charged / RATE - stage.window.most_s) * 1000
    next_ms = _since(throttled_asked, following)
    yield QuotaFinding(
        f"{stem}/mute", judgement.mute(throttle_ms, throttled.took_ms, next_ms, prompt=stage.prompt)
    )
    waited_ms = _since(throttled_asked, own_answer)
    yield QuotaFinding(
        f"{stem}/own-connection", judgement.not_muted("the same client", waited_ms, throttle_ms)
    )
    waited_ms = _since(throttled_asked, other_answer)
    complaint = judgement.not_muted("another client-id", waited_ms, throttle_ms)
    yield QuotaFinding(
        f"{stem}/other-client", complaint or _below("", other_answer).complaint, errors_of(other_answer)
    )
    if api_key is ApiKey.FETCH and stage.prompt:
        yield QuotaFinding(f"{stem}/no-records", _without_records(throttled))


def _messages(
    stage: Stage, api_key: ApiKey, version: int
) -> tuple[Callable[[], Message], Callable[[], Message]]:
    """Make requests: one within the quota, and one that exceeds it."""
    if api_key is ApiKey.FETCH:
        fetch = partial(requests.fetch, version, stage.topic, stage.topic_id, FETCH_BYTES)
        return fetch, fetch
    make = partial(requests.produce, version, stage.topic, stage.topic_id)
    return partial(make, SMALL_BYTES), partial(make, LARGE_BYTES)


def _below(name: str, answer: Answer) -> QuotaFinding:
    errors = errors_of(answer)
    if errors:
        return QuotaFinding(
            name, f"the request failed with error codes {', '.join(map(str, errors))}", errors
        )
    return QuotaFinding(name, judgement.below_quota(answer.throttle_ms))


def _charge(answer: Answer) -> int:
    """Bytes that a quota counts: a produce request's length, a fetch response's."""
    return answer.asked.bytes if answer.asked.api_key == ApiKey.PRODUCE else answer.bytes


def _since(asked: Asked, answer: Answer) -> float:
    """Time (ms) from a request to an answer, perhaps of another request."""
    return (answer.at_s - asked.at_s) * 1000


def errors_of(answer: Answer) -> tuple[int, ...]:
    """Return the error codes of a Produce or Fetch response, without 0."""
    message = answer.message
    codes: set[int] = set()
    if isinstance(message, ProduceResponse):
        codes = {part.error_code for topic in message.responses for part in topic.partition_responses}
    elif isinstance(message, FetchResponse):
        codes = {part.error_code for topic in message.responses for part in topic.partitions}
        codes.add(message.error_code)
    return tuple(sorted(codes - {0}))


def _without_records(answer: Answer) -> str:
    message = answer.message
    if not isinstance(message, FetchResponse):
        return "the response is no Fetch response"
    size = sum(len(part.records or b"") for topic in message.responses for part in topic.partitions)
    if not size:
        return ""
    return (
        f"the throttled response has {size} bytes of records; it should have none, so that the client "
        "fetches them again after its wait (KIP-219)"
    )


def _unanswered_job(stage: Stage, version: int) -> Job:
    client_id = f"{stage.prefix}produce-acks-0"
    name = f"quotas/produce/v{version}/acks-0-mute"
    return Job(
        checks=checks_of("quotas/produce", ApiKey.PRODUCE, version, ["acks-0-mute"]),
        quotas=(ClientQuota(client_id, PRODUCE, RATE),),
        run=partial(_run_unanswered, client_id=client_id, name=name, version=version),
    )


def _run_unanswered(stage: Stage, client_id: str, name: str, version: int) -> Iterator[QuotaFinding]:
    """A producer that wants no response is muted, too. The charge is counted when the records are written, so
    the wait begins a little after the request.
    """
    with ProbeClient(stage.leader, client_id) as client:
        request = requests.produce(version, stage.topic, stage.topic_id, LARGE_BYTES, acks=0)
        asked = client.send(request, ApiKey.PRODUCE, version)
        begun_s = time.monotonic()
        following = client.ask(requests.brokers(), ApiKey.METADATA, METADATA_VERSION)
    least_ms = (asked.bytes / RATE - stage.window.most_s) * 1000
    begun_ms = (begun_s - asked.at_s) * 1000 + (stage.window.most_s - stage.window.least_s) * 1000
    yield QuotaFinding(name, judgement.mute(least_ms, begun_ms, _since(asked, following), prompt=True))
