"""A job: some checks that share connections and client-ids. Jobs run at the same time, each in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from weir.conformance.probe.case import CaseOutcome, Result
from weir.conformance.probe.link import (
    ClosedError,
    ConversationError,
    HungError,
    RefusedError,
    UnreadableError,
)
from weir.conformance.probe.quotas.client import BrokerEndpoint
from weir.conformance.probe.quotas.judgement import Window
from weir.protocol import schema
from weir.protocol.api import ApiKey
from weir.protocol.versions import NONE, VersionRange

if TYPE_CHECKING:
    from collections.abc import Iterable

MUTES_FROM: Final = 6
"""Version of Produce since which brokers send a throttled response at once, and then mute (KIP-219)."""
NEWER_PRODUCE: Final = 3
NEWER_FETCH: Final = 4
"""Brokers from 4.0 on do not accept Produce before v3, and Fetch before v4 (KIP-896). They advertise Produce
from v0 on nevertheless, because librdkafka demands that (KAFKA-18659).
"""
_OUTCOMES: Final[Mapping[type[ConversationError], CaseOutcome]] = {
    RefusedError: CaseOutcome.REFUSED,
    ClosedError: CaseOutcome.CLOSED,
    HungError: CaseOutcome.HUNG,
    UnreadableError: CaseOutcome.UNREADABLE,
}


class ClientQuota(msgspec.Struct, frozen=True):
    """A quota of a client-id."""

    client_id: str
    key: str
    """One of `quota_names`."""
    value: float
    """Bytes/s, percent of a thread, or partitions/s."""


class Stage(msgspec.Struct, frozen=True):
    """All that jobs share."""

    leader: BrokerEndpoint
    """Leader of the scratch topic's partition 0, which has 20 kB of records."""
    controller: BrokerEndpoint
    versions: Mapping[int, VersionRange]
    """Versions that the target advertises and that the schemas have, by API key."""
    topic: str
    topic_id: UUID
    """The scratch topic's; zero if the target has no topic ids."""
    prefix: str
    """Beginning of all client-ids, and of all further topics."""
    window: Window = Window()
    controller_window: Window = Window()

    @property
    def prompt(self) -> bool:
        """True if the target must send throttled responses at once (KIP-219)."""
        return self.of(ApiKey.PRODUCE).max >= MUTES_FROM

    def of(self, api_key: int) -> VersionRange:
        """Versions of an API; `NONE` if the target lacks it."""
        return self.versions.get(api_key, NONE)


class Check(msgspec.Struct, frozen=True):
    """A promise to judge one thing."""

    name: str
    """"quotas/produce/v9/mute"."""
    api_key: int
    version: int


class QuotaFinding(msgspec.Struct, frozen=True):
    """The judgement of one check."""

    name: str
    complaint: str
    """"" if passed."""
    errors: tuple[int, ...] = ()
    """Error codes of the response, without 0."""


class Job(msgspec.Struct, frozen=True):
    """Checks, the quotas that they need, and the function that makes a finding for each check."""

    checks: tuple[Check, ...]
    quotas: tuple[ClientQuota, ...]
    run: Callable[[Stage], Iterator[QuotaFinding]]
    alters: bool = False
    """True if the job itself alters quotas."""


def advertised(versions: Mapping[int, VersionRange]) -> dict[int, VersionRange]:
    """Return those of the advertised versions that the target accepts and the schemas have."""
    found = {}
    for api_key, offered in versions.items():
        known = schema.api(api_key)
        both = NONE if known is None else offered.intersect(known.request.versions)
        if both:
            found[api_key] = both
    fetches, produces = found.get(ApiKey.FETCH, NONE), found.get(ApiKey.PRODUCE, NONE)
    if fetches.min >= NEWER_FETCH and produces:
        found[ApiKey.PRODUCE] = VersionRange(max(NEWER_PRODUCE, produces.min), produces.max)
    return found


def results(job: Job, stage: Stage) -> list[Result]:
    """Run a job. Return a result for each of its checks, in their order. If the conversation ends, the
    remaining checks fail.
    """
    findings: dict[str, QuotaFinding] = {}
    ended = "the profile made no such check: please report it"
    outcome = CaseOutcome.ANSWER
    try:
        for finding in job.run(stage):
            findings[finding.name] = finding
    except ConversationError as error:
        ended = f"the conversation ended before this check: {str(error) or type(error).__name__}"
        outcome = _OUTCOMES.get(type(error), CaseOutcome.CLOSED)
    missing = (QuotaFinding(check.name, ended) for check in job.checks if check.name not in findings)
    findings |= {finding.name: finding for finding in missing}
    return [
        _result(
            check,
            findings[check.name],
            CaseOutcome.ANSWER if findings[check.name].complaint != ended else outcome,
        )
        for check in job.checks
    ]


def _result(check: Check, finding: QuotaFinding, outcome: CaseOutcome) -> Result:
    known = schema.api(check.api_key)
    errors = sorted({code for code in finding.errors if code})
    return Result(
        case=check.name,
        api=f"API {check.api_key}" if known is None else known.name,
        version=check.version,
        outcome=CaseOutcome.ERROR if errors and outcome is CaseOutcome.ANSWER else outcome,
        errors=errors,
        passed=not finding.complaint,
        message=finding.complaint,
    )


def has_throttle_field(api_key: int, version: int) -> bool:
    """Return True if responses of this version have throttle_time_ms."""
    known = schema.api(api_key)
    if known is None or version not in known.response.versions:
        return False
    return any(slot.name == "throttle_time_ms" for slot in known.response.layout(version).fields)


def checks_of(stem: str, api_key: int, version: int, names: Iterable[str]) -> tuple[Check, ...]:
    """Return checks with the names "STEM/vN/NAME"."""
    return tuple(Check(f"{stem}/v{version}/{name}", api_key, version) for name in names)
