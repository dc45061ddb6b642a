"""request_percentage: the throttle time of every API, version by version.

The quota is so small (11 µs in ten seconds) that each request exceeds it. Then the throttle time is one
window, whatever the request took. The requests of an API go over one connection, one version after the other,
so each waits for the throttle time of the one before.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.conformance.probe.quotas import harmless, judgement, requests
from weir.conformance.probe.quotas.bandwidth import METADATA_VERSION, UNLIMITED
from weir.conformance.probe.quotas.client import ProbeClient
from weir.conformance.probe.quotas.jobs import ClientQuota, Job, QuotaFinding, checks_of, has_throttle_field
from weir.conformance.quota_names import REQUEST
from weir.protocol import schema
from weir.protocol.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weir.conformance.probe.quotas.client import Answer
    from weir.conformance.probe.quotas.jobs import Stage

PERCENT: Final = 0.00001
_NAMES: Final = ("below-quota", "throttle-field", "mute")


def jobs(stage: Stage) -> Iterator[Job]:
    """Return a job for each API with a throttle time."""
    for api_key in sorted(stage.versions):
        versions = [version for version in stage.of(api_key) if _can_ask(api_key, version)]
        if versions:
            yield _job(stage, api_key, versions)


def _can_ask(api_key: int, version: int) -> bool:
    return has_throttle_field(api_key, version) and harmless.request(api_key, version) is not None


def _job(stage: Stage, api_key: int, versions: Sequence[int]) -> Job:
    known = schema.api(api_key)
    name = f"API {api_key}" if known is None else known.name
    client_id = f"{stage.prefix}request-{name}"
    stem = f"quotas/request-time/{name}"
    return Job(
        checks=tuple(check for version in versions for check in checks_of(stem, api_key, version, _NAMES)),
        quotas=(ClientQuota(client_id, REQUEST, PERCENT),),
        run=partial(_run, client_id=client_id, stem=stem, api_key=api_key, versions=versions),
    )


def _run(
    stage: Stage, client_id: str, stem: str, api_key: int, versions: Sequence[int]
) -> Iterator[QuotaFinding]:
    with (
        ProbeClient(stage.leader, client_id) as client,
        ProbeClient(stage.leader, stage.prefix + UNLIMITED) as other,
    ):
        before: _Throttled | None = None
        for version in versions:
            message = harmless.request(api_key, version)
            assert message is not None  # `jobs` has left out other versions
            name = f"{stem}/v{version}"
            free = other.ask(message, api_key, version)
            yield QuotaFinding(f"{name}/below-quota", judgement.below_quota(free.throttle_ms))
            answer = client.ask(message, api_key, version)
            if before is not None:
                yield before.finding(stage, answer)
            told = judgement.request_throttle(answer.throttle_ms, stage.window)
            yield QuotaFinding(f"{name}/throttle-field", told)
            before = _Throttled(
                f"{name}/mute", answer, max(answer.asked.at_s, before.ends_s if before else 0)
            )
        if before is not None:
            yield before.finding(stage, client.ask(requests.brokers(), ApiKey.METADATA, METADATA_VERSION))


class _Throttled(NamedTuple):
    """A throttled response."""

    name: str
    answer: Answer
    begun_s: float
    """Time (s) since which the broker could serve the request: it was sent, and the mute before was over."""

    @property
    def ends_s(self) -> float:
        """Time (s) at which the mute may end at the earliest."""
        return self.begun_s + self.answer.throttle_ms / 1000

    def finding(self, stage: Stage, following: Answer) -> QuotaFinding:
        """Judge the mute, by the next response."""
        first_ms = (self.answer.at_s - self.begun_s) * 1000
        next_ms = (following.at_s - self.begun_s) * 1000
        complaint = judgement.mute(self.answer.throttle_ms, first_ms, next_ms, prompt=stage.prompt)
        return QuotaFinding(self.name, complaint)
