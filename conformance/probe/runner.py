"""Runs cases against a target, each on a connection of its own, and yields their results."""

from __future__ import annotations

import contextlib
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import msgspec

from weir.conformance.probe import sasl
from weir.conformance.probe.brokers import with_fault
from weir.conformance.probe.case import Case, CaseOutcome, Result
from weir.conformance.probe.judging import judge
from weir.conformance.probe.link import (
    ClosedError,
    ConversationError,
    HungError,
    ProbeLink,
    ProbeTarget,
    UnreadableError,
    decode,
    frame,
)
from weir.conformance.probe.login import PLAIN, Login, connect, plain_token
from weir.conformance.probe.malformed import base_name, malformed
from weir.conformance.probe.quotas import QuotaProfile
from weir.conformance.probe.requests import HARMFUL, Names, well_formed
from weir.conformance.probe.scratch import (
    TargetCluster,
    UnusableError,
    api_name,
    error_codes,
    remove_groups,
    scratch,
)
from weir.protocol.api import ApiKey
from weir.protocol.api import versions as known_versions
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import LENGTH, LENGTH_BYTES
from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from weir.protocol.versions import VersionRange, VersionSet

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Error codes that pass while a coordinator loads, or a leader is elected. Their cases are repeated."""
REPEAT_S: Final = 10.0
"""Time (s) after which such an error code counts as the outcome."""
POLL_S: Final = 0.1
GONE_S: Final = 5.0
"""Time (s) for which a target may refuse connections before the run ends."""
LACKING_MAX: Final = 20
"""Maximum number of lines about APIs that the schemas lack."""
MARKER_ID: Final = 0x6D61_726B
_HEAD_BYTES: Final = 12
"""Number of bytes up to the end of the correlation id, with the length prefix."""


class GoneError(UnusableError):
    """Raised if the target stopped in the middle of the run."""


class ProbeOptions(msgspec.Struct, frozen=True):
    """One run."""

    target: ProbeTarget
    login: Login | None = None
    seed: int = 0
    randoms: int = 3
    """Number of random shapes for each API and version."""
    only: tuple[str, ...] = ()
    """Names of cases, beginnings of them ("Metadata", "Metadata/v9") or patterns; () for all."""
    skip: tuple[str, ...] = ()
    """Names, beginnings or patterns of cases that are not run."""
    protocol: bool = True
    """True to run the cases of the profile `protocol`."""
    quotas: bool = False
    """True to run the profile `quotas`."""
    quotas_set: str | None = None
    """Name of the run for which an operator has set the profile's quotas; None to set them."""
    command: str = "weir probe"
    """Beginning of the command that repeats a case."""

    def selects(self, name: str) -> bool:
        """Return True if the case with this name is to be run."""
        return selected(name, self.only) and not (self.skip and selected(name, self.skip))


def requests_of(cluster: TargetCluster, names: Names, options: ProbeOptions) -> Iterator[Case]:
    """Yield the well-formed requests."""
    yield from well_formed(cluster.offered, names, options.seed, options.randoms)


def malformed_of(cluster: TargetCluster, names: Names, options: ProbeOptions) -> Iterator[Case]:
    yield from malformed(cluster.offered, names, options.seed)


def sasl_of(cluster: TargetCluster, _names: Names, options: ProbeOptions) -> Iterator[Case]:
    """Yield SASL requests out of order."""
    login, usable = options.login, cluster.usable()
    if login is None:
        yield from sasl.unasked_cases(usable)
    else:
        token = plain_token(login) if login.mechanism == PLAIN else None
        yield from sasl.cases(usable, login.mechanism, token)


SOURCES: Final[Sequence[Callable[[TargetCluster, Names, ProbeOptions], Iterable[Case]]]] = (
    requests_of,
    malformed_of,
    sasl_of,
)
"""Sources of cases in the profile `protocol`, in their order."""


class ProbeRun:
    """One run of the probe. Iterate over `results()` once."""

    def __init__(self, options: ProbeOptions) -> None:
        self.options = options
        self.cluster = TargetCluster(options.target, options.login, {})
        self.names = Names.fresh()
        self.total = 0
        """Number of cases, known when the first result comes."""
        self._quotas: QuotaProfile | None = None
        self._permanent: set[frozenset[int]] = set()
        """Error codes that did not pass in `REPEAT_S`. They are not waited for again."""

    @property
    def notes(self) -> list[str]:
        """Lines for the user about what was not probed, and what is left behind. Complete when `results` has
        ended.
        """
        quotas = self._quotas.notes if self._quotas else []
        return [*self.cluster.notes, *quotas, *self.cluster.left]

    def case_names(self) -> list[str]:
        """Return the names of the cases, in their order, without running any. Raises UnusableError: the
        target cannot be probed.
        """
        try:
            self.cluster = TargetCluster(self.options.target, self.options.login, offered_by(self.options))
            cases = [case.name for case in self._cases(self.names)] if self.options.protocol else []
            return cases + (quota_profile(self.options).names if self.options.quotas else [])
        except ConversationError as error:
            raise self._unusable(error) from None

    def results(self) -> Generator[Result, None, None]:
        """Yield the result of each case. Removes the scratch topic in the end, also if the caller stops.

        Raises UnusableError: the target cannot be probed, or stopped.
        """
        try:
            self.cluster = TargetCluster(self.options.target, self.options.login, offered_by(self.options))
            if self.options.quotas:
                self._quotas = quota_profile(self.options)
            with scratch(self.cluster, self.names) as names:
                cases = self._cases(names) if self.options.protocol else []
                self.total = len(cases) + (len(self._quotas.names) if self._quotas else 0)
                try:
                    for case in cases:
                        yield self._result(case)
                finally:
                    self._remove_groups(names, cases)
                if self._quotas is not None:
                    yield from self._quota_results(self._quotas, names)
        except ConversationError as error:
            raise self._unusable(error) from None

    def _cases(self, names: Names) -> list[Case]:
        self.cluster.notes.extend(not_probed(self.cluster.offered))
        cases = (case for source in SOURCES for case in source(self.cluster, names, self.options))
        wanted = (case for case in cases if self.options.selects(case.name))
        return sorted(wanted, key=lambda case: case.dangerous)

    def _quota_results(self, profile: QuotaProfile, names: Names) -> Iterator[Result]:
        for result in profile.results(names.topic):
            repeat = f"{self.options.command} --profile quotas --only '{result.case}'"
            yield msgspec.structs.replace(result, repeat=repeat)

    def _unusable(self, error: ConversationError) -> UnusableError:
        place = f"{self.options.target.host}:{self.options.target.port}"
        text = str(error).removeprefix(f"{place}: ")
        if not isinstance(error, ClosedError):
            return UnusableError(f"{place}: {text}")
        login = "" if self.options.login is not None else " or upstream_sasl_username"
        return UnusableError(
            f"{place} closes the connection ({text}): does this listener need --set upstream_tls=FILE{login}?"
        )

    def _remove_groups(self, names: Names, cases: Iterable[Case]) -> None:
        with contextlib.suppress(ConversationError, UnusableError):
            offsets = (ApiKey.OFFSET_COMMIT, ApiKey.JOIN_GROUP)
            used = {
                name for case in cases if case.api_key in offsets for name in (case.name, base_name(case))
            }
            groups = [msgspec.structs.replace(names, case=name).group for name in sorted(used)]
            remove_groups(self.cluster, groups)

    def _result(self, case: Case) -> Result:
        """Run a case until its outcome is no passing state of the cluster."""
        deadline = time.monotonic() + REPEAT_S
        while True:
            outcome, errors, detail = self._outcome(case)
            passed, message = judge(case, outcome, errors, detail)
            result = Result(
                case=case.name,
                api=api_name(case.api_key),
                version=case.version,
                outcome=outcome,
                errors=errors,
                passed=passed,
                message=message,
                repeat=self._repeat(case),
            )
            passing = PASSING.intersection(errors)
            if not passing or passing in self._permanent:
                return with_fault(result)
            if time.monotonic() > deadline:
                self._permanent.add(passing)
                return with_fault(result)
            time.sleep(POLL_S)

    def _outcome(self, case: Case) -> tuple[CaseOutcome, list[int], str]:
        """Run a case once. Raises GoneError if the target has stopped."""
        deadline = time.monotonic() + GONE_S
        while True:
            found = attempt(self.options, case)
            if found[0] is CaseOutcome.HUNG:
                self._check(case)
            if found[0] is not CaseOutcome.REFUSED:
                return found
            if time.monotonic() > deadline:
                raise self._gone(case, found[2])
            time.sleep(POLL_S)

    def _check(self, case: Case) -> None:
        """Raise GoneError if the target does not even answer ApiVersions."""
        try:
            offered_by(self.options)
        except ConversationError as error:
            raise self._gone(case, str(error)) from None

    def _gone(self, case: Case, detail: str) -> GoneError:
        place = f"{self.options.target.host}:{self.options.target.port}"
        detail = detail.removeprefix(f"{place}: ")
        return GoneError(
            f"{place} stopped at the case {case.name}, or at the one before it: {detail}. "
            f"To repeat it: {self._repeat(case)}"
        )

    def _repeat(self, case: Case) -> str:
        return f"{self.options.command} --only '{case.name}' --seed {self.options.seed}"


def quota_profile(options: ProbeOptions) -> QuotaProfile:
    """Return the quota profile with its checks. Raises ConversationError."""
    return QuotaProfile(
        options.target,
        options.login,
        set_for_run=options.quotas_set,
        only=options.selects,
    )


def offered_by(options: ProbeOptions) -> dict[int, VersionRange]:
    """Return API key → versions of the target's ApiVersions response, version 0. Raises ConversationError."""
    with connect(options.target, options.login) as link:
        answer = link.ask(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
    assert isinstance(answer, ApiVersionsResponse)
    return {entry.api_key: VersionRange(entry.min_version, entry.max_version) for entry in answer.api_keys}


def not_probed(offered: Mapping[int, VersionRange]) -> Iterator[str]:
    """Yield lines that name the offered APIs and versions without well-formed cases."""
    harmful = [api_name(api_key) for api_key in sorted(offered) if api_key in HARMFUL]
    if harmful:
        yield f"not probed with well-formed requests, which could do harm: {', '.join(harmful)}"
    lacking = []
    for api_key, versions in sorted(offered.items()):
        if missing := _missing(known_versions(api_key), versions):
            lacking.append(f"{api_name(api_key)}, versions {missing}")
    yield from (f"not probed, as Weir's schemas lack it: {one}" for one in lacking[:LACKING_MAX])
    if len(lacking) > LACKING_MAX:
        yield f"not probed, as Weir's schemas lack them: {len(lacking) - LACKING_MAX:,} more APIs"


def _missing(known: VersionRange | None, offered: VersionRange) -> VersionSet:
    """Return the offered versions that are not known. A target may offer all of 65,536."""
    if known is None or not known.intersect(offered):
        return VersionSet((offered,) if offered else ())
    below = VersionRange(offered.min, known.min - 1)
    above = VersionRange(known.max + 1, offered.max)
    return VersionSet(tuple(found for found in (below, above) if found))


def selected(name: str, only: Sequence[str]) -> bool:
    """Return True if one of these names, beginnings or patterns selects a case."""
    return not only or any(
        name == one or name.startswith(f"{one}/") or fnmatchcase(name, one) for one in only
    )


def attempt(options: ProbeOptions, case: Case) -> tuple[CaseOutcome, list[int], str]:
    """Send a case's bytes. Return the outcome, the error codes, and a text about it."""
    try:
        link = connect(options.target, None if case.unauthenticated else options.login)
    except ConversationError as error:
        return CaseOutcome.REFUSED, [], str(error)
    with link:
        try:
            return _converse(link, case)
        except UnreadableError as error:
            return CaseOutcome.UNREADABLE, [], str(error)
        except HungError:
            return CaseOutcome.HUNG, [], ""
        except ClosedError:
            return CaseOutcome.CLOSED, [], ""


def _converse(link: ProbeLink, case: Case) -> tuple[CaseOutcome, list[int], str]:
    """Send the bytes, and read a response for each frame. Raises ConversationError."""
    *before, subject = _frames(case.data)
    silent = CaseOutcome.SILENCE in case.permitted
    marker = frame(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0, MARKER_ID) if silent else b""
    size = case.segment_bytes or len(case.data + marker)
    for start in range(0, len(case.data + marker), size):
        link.send((case.data + marker)[start : start + size])
    if case.ends_sending:
        link.end_sending()
    for index, first in enumerate(before):
        is_token = 1 <= index <= case.raw_tokens
        found = link.receive(shortest=0 if is_token else LENGTH_BYTES)
        if not is_token and found[:4] != first[8:_HEAD_BYTES]:
            asked, answered = (int.from_bytes(one, signed=True) for one in (first[8:_HEAD_BYTES], found[:4]))
            raise UnreadableError(
                f"response {index + 1} has correlation id {answered}, request {index + 1} has {asked}: "
                "responses come in the order of the requests"
            )
    data = link.receive()
    if silent and int.from_bytes(data[:4], signed=True) == MARKER_ID:
        return CaseOutcome.SILENCE, [], ""
    expected = int.from_bytes(subject[8:_HEAD_BYTES], signed=True)
    try:
        response = decode(data, case.api_key, case.version, expected)
    except ProtocolError as error:
        raise UnreadableError(str(error)) from None
    codes = error_codes(response, case.api_key, case.version)
    return (CaseOutcome.ERROR if codes else CaseOutcome.ANSWER), codes, ""


def _frames(data: bytes) -> list[bytes]:
    """Cut bytes into frames with their length prefixes. The last one is all that is left, whatever its
    length says.
    """
    frames = []
    while len(data) >= LENGTH_BYTES:
        (length,) = LENGTH.unpack_from(data)
        end = LENGTH_BYTES + length
        if length < 0 or end >= len(data):
            break
        frames.append(data[:end])
        data = data[end:]
    return [*frames, data]
