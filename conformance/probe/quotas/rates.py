"""The rate over ten seconds, of a producer and of a consumer with the newest versions.

A client that begins at full speed gets ten seconds of its quota at once, and then almost nothing until these
bytes are forgotten. So the client begins at its quota for `EVEN_S`, which fills the window evenly. Then it
sends as fast as it can, and only mutes hold it back.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from weir.conformance.probe.quotas import judgement, requests
from weir.conformance.probe.quotas.client import ProbeClient
from weir.conformance.probe.quotas.jobs import Check, ClientQuota, Job, QuotaFinding
from weir.protocol.api import ApiKey
from weir.protocol.messages import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weir.conformance.probe.quotas.client import Answer
    from weir.conformance.probe.quotas.jobs import Stage

RATE: Final = 20_000.0
"""Quota (bytes/s)."""
REQUEST_BYTES: Final = 4000
EVEN_S: Final = 12.0
MEASURED_S: Final = 12.0
"""The first two seconds at full speed do not count."""
SETTLING_S: Final = 2.0


def jobs(stage: Stage) -> Iterator[Job]:
    for kind, api_key, key in (
        ("produce", ApiKey.PRODUCE, "producer_byte_rate"),
        ("fetch", ApiKey.FETCH, "consumer_byte_rate"),
    ):
        if stage.of(api_key):
            version = stage.of(api_key).max
            client_id = f"{stage.prefix}{kind}-rate"
            name = f"quotas/{kind}/v{version}/rate"
            yield Job(
                checks=(Check(name, api_key, version),),
                quotas=(ClientQuota(client_id, key, RATE),),
                run=partial(_run, client_id=client_id, api_key=api_key, version=version, name=name),
            )


def _run(stage: Stage, client_id: str, api_key: ApiKey, version: int, name: str) -> Iterator[QuotaFinding]:
    make = requests.fetch if api_key is ApiKey.FETCH else requests.produce
    charges: list[tuple[float, int]] = []
    with ProbeClient(stage.leader, client_id) as client:
        begun_s = time.monotonic()
        even_until_s = begun_s + EVEN_S
        until_s = even_until_s + MEASURED_S
        while (now_s := time.monotonic()) < until_s:
            answer = client.ask(make(version, stage.topic, stage.topic_id, REQUEST_BYTES), api_key, version)
            charges.append((answer.at_s, charge(answer)))
            if now_s < even_until_s:
                due_s = begun_s + sum(size for _at_s, size in charges) / RATE
                time.sleep(max(0.0, due_s - time.monotonic()))
    complaint = judgement.rate(charges, even_until_s + SETTLING_S, until_s, RATE)
    yield QuotaFinding(name, complaint)


def charge(answer: Answer) -> int:
    """Bytes that count: a produce request's length; a fetch response's, if it has records."""
    if answer.asked.api_key == ApiKey.PRODUCE:
        return answer.asked.bytes
    message = answer.message
    if not isinstance(message, FetchResponse):
        return 0
    brings = any(part.records for topic in message.responses for part in topic.partitions)
    return answer.bytes if brings else 0
