"""The quota of mutations (KIP-599): CreateTopics, CreatePartitions and DeleteTopics, version by version.

The bucket of an idle client has 2.2 tokens. Three partitions are admitted and leave 0.8 tokens missing, which
take 4 s. Then strict versions refuse a topic, and older versions admit it.

Mutes of versions without a throttle time are not checked. In KRaft the controller tells the broker the
throttle time in its response, so a broker does not mute for CreateTopics v0 and v1 and DeleteTopics v0 (seen
at 3.9.1). ZooKeeper brokers do (2.8.2).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from weir.conformance.probe.quotas import judgement, requests
from weir.conformance.probe.quotas.bandwidth import METADATA_VERSION
from weir.conformance.probe.quotas.client import ProbeClient
from weir.conformance.probe.quotas.jobs import ClientQuota, Job, QuotaFinding, checks_of, has_throttle_field
from weir.conformance.quota_names import MUTATION
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
)
from weir.protocol.values import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weir.conformance.probe.quotas.client import Answer
    from weir.conformance.probe.quotas.jobs import Stage

RATE: Final = 0.2
"""Quota (partitions/s)."""
PARTITIONS: Final = 3
"""Number of partitions that the first request creates or deletes: more than the whole bucket."""

STRICT_PARTITIONS: Final = 3
"""First version of CreatePartitions that knows error 89 (KIP-599)."""


class MutationApi(msgspec.Struct, frozen=True):
    """One of the three APIs."""

    kind: str
    """In names: "create-topics"."""
    name: str
    """Kafka's name."""
    api_key: ApiKey
    strict_from: int
    """First version that knows THROTTLING_QUOTA_EXCEEDED."""
    topics: tuple[int, ...]
    """Numbers of partitions of the topics that must exist before."""
    first: Callable[[int, str], Message]
    """Makes the request that overdraws the bucket, from the version and the beginning of topics' names."""
    second: Callable[[int, str], Message]
    """Makes a request for one more topic."""


APIS: Final = (
    MutationApi(
        kind="create-topics",
        name="CreateTopics",
        api_key=ApiKey.CREATE_TOPICS,
        strict_from=6,
        topics=(),
        first=lambda _version, stem: requests.create_topics({f"{stem}-a": PARTITIONS}),
        second=lambda _version, stem: requests.create_topics({f"{stem}-b": 1}),
    ),
    MutationApi(
        kind="create-partitions",
        name="CreatePartitions",
        api_key=ApiKey.CREATE_PARTITIONS,
        strict_from=STRICT_PARTITIONS,
        topics=(1, 1),
        first=lambda _version, stem: requests.create_partitions(f"{stem}-a", 1 + PARTITIONS),
        second=lambda _version, stem: requests.create_partitions(f"{stem}-b", 2),
    ),
    MutationApi(
        kind="delete-topics",
        name="DeleteTopics",
        api_key=ApiKey.DELETE_TOPICS,
        strict_from=5,
        topics=(PARTITIONS, 1),
        first=lambda version, stem: requests.delete_topics(version, [f"{stem}-a"]),
        second=lambda version, stem: requests.delete_topics(version, [f"{stem}-b"]),
    ),
)


def topics(stage: Stage) -> dict[str, int]:
    """Return the topics that the jobs need, with their numbers of partitions."""
    return {
        f"{_stem(stage, api, version)}-{suffix}": partitions
        for api in APIS
        for version in stage.of(api.api_key)
        for suffix, partitions in zip("ab", api.topics, strict=False)
    }


def leftovers(stage: Stage) -> list[str]:
    """Return the names of all topics that may exist after the jobs."""
    return [
        f"{_stem(stage, api, version)}-{suffix}"
        for api in APIS
        for version in stage.of(api.api_key)
        for suffix in "ab"
    ]


def jobs(stage: Stage) -> Iterator[Job]:
    """Return a job for each version of the three APIs."""
    for api in APIS:
        for version in stage.of(api.api_key):
            yield _job(stage, api, version)


def _stem(stage: Stage, api: MutationApi, version: int) -> str:
    return f"{stage.prefix}{api.kind}-v{version}"


def _job(stage: Stage, api: MutationApi, version: int) -> Job:
    names = [
        "admitted",
        "throttle-field",
        "mute",
        "error-89" if version >= api.strict_from else "no-error-89",
    ]
    if not has_throttle_field(api.api_key, version):
        names = ["admitted", "no-error-89"]
    client_id = _stem(stage, api, version)
    return Job(
        checks=checks_of(f"quotas/{api.kind}", api.api_key, version, names),
        quotas=(ClientQuota(client_id, MUTATION, RATE),),
        run=partial(_run, api=api, version=version),
    )


def _run(stage: Stage, api: MutationApi, version: int) -> Iterator[QuotaFinding]:
    stem = f"quotas/{api.kind}/v{version}"
    client_id = _stem(stage, api, version)
    strict = version >= api.strict_from
    burst = RATE * stage.controller_window.most_s
    owed = PARTITIONS - burst
    with (
        ProbeClient(stage.controller, client_id) as client,
        ProbeClient(stage.controller, client_id) as second,
    ):
        first = client.ask(api.first(version, client_id), api.api_key, version)
        complaint = _admitted(first)
        if strict and not complaint:
            complaint = judgement.below_quota(first.throttle_ms)
        yield QuotaFinding(f"{stem}/admitted", complaint, errors_of(first))
        later = (client if strict else second).ask(api.second(version, client_id), api.api_key, version)
        throttled = later if strict else first
        following = client.ask(requests.brokers(), ApiKey.METADATA, METADATA_VERSION)
    code = next(iter(errors_of(later)), 0)
    refused = judgement.refusal(code, api.name, version, api.strict_from)
    yield QuotaFinding(f"{stem}/{'error-89' if strict else 'no-error-89'}", refused, errors_of(later))
    if not has_throttle_field(api.api_key, version):
        return
    elapsed_ms = (throttled.at_s - first.asked.at_s) * 1000
    told = judgement.mutation_throttle(throttled.throttle_ms, owed, RATE, elapsed_ms)
    yield QuotaFinding(f"{stem}/throttle-field", told, errors_of(throttled))
    next_ms = (following.at_s - throttled.asked.at_s) * 1000
    complaint = judgement.mute(throttled.throttle_ms, throttled.took_ms, next_ms, prompt=stage.prompt)
    yield QuotaFinding(f"{stem}/mute", complaint)


def _admitted(answer: Answer) -> str:
    errors = errors_of(answer)
    if not errors:
        return ""
    return (
        f"the first topic got error codes {', '.join(map(str, errors))}; an idle client has all its tokens, "
        "and one topic may overdraw them (KIP-599)"
    )


def errors_of(answer: Answer) -> tuple[int, ...]:
    """Return the error codes of a response of the three APIs, without 0; none of other APIs."""
    message = answer.message
    codes: set[int] = set()
    if isinstance(message, CreateTopicsResponse):
        codes = {topic.error_code for topic in message.topics}
    elif isinstance(message, CreatePartitionsResponse):
        codes = {topic.error_code for topic in message.results}
    elif isinstance(message, DeleteTopicsResponse):
        codes = {topic.error_code for topic in message.responses}
    return tuple(sorted(codes - {0}))
