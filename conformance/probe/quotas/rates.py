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
from weir.conformance.probe.quotas.load import Driver, GreedyLoad, MeasuredAnswer
from weir.conformance.quota_names import FETCH, PRODUCE
from weir.protocol.api import ApiKey
from weir.protocol.messages import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weir.conformance.probe.quotas.client import Answer
    from weir.conformance.probe.quotas.jobs import Stage

BYTE_QUOTAS: Final = (
    ("produce", ApiKey.PRODUCE, PRODUCE),
    ("fetch", ApiKey.FETCH, FETCH),
)
"""Names in cases, APIs and keys of the quotas of bytes."""
RATE: Final = 20_000.0
"""Quota (bytes/s)."""
REQUEST_BYTES: Final = 4000
EVEN_S: Final = 12.0
MEASURED_S: Final = 12.0
"""The first two seconds at full speed do not count."""
SETTLING_S: Final = 2.0


def jobs(stage: Stage) -> Iterator[Job]:
    for kind, api_key, key in BYTE_QUOTAS:
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
    load = GreedyLoad(RATE, EVEN_S, EVEN_S + SETTLING_S, EVEN_S + MEASURED_S)
    with ProbeClient(stage.leader, client_id) as client:

        def ask() -> MeasuredAnswer:
            request = make(version, stage.topic, stage.topic_id, REQUEST_BYTES)
            answer = client.ask(request, api_key, version)
            return MeasuredAnswer(answer.at_s, charge(answer))

        passed = Driver(load, time.monotonic, time.sleep).drive(ask)
    charges = [(one.at_s, one.units) for one in passed]
    yield QuotaFinding(name, judgement.rate(charges, load.settled_s, load.lasts_s, RATE))


def charge(answer: Answer) -> int:
    """Bytes that count: a produce request's length; a fetch response's, if it has records."""
    if answer.asked.api_key == ApiKey.PRODUCE:
        return answer.asked.bytes
    message = answer.message
    if not isinstance(message, FetchResponse):
        return 0
    brings = any(part.records for topic in message.responses for part in topic.partitions)
    return answer.bytes if brings else 0
