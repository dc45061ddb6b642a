"""A sample of the malformed requests of an API's version, the same for the same seed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from weir.conformance.probe.case import Case, CaseOutcome
from weir.conformance.probe.malformed.classes import CLASSES, Class, ClassGroup, Expected
from weir.conformance.probe.malformed.marks import mark
from weir.protocol import schema
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weir.conformance.probe.malformed.marks import Marked

ANSWERED: Final = frozenset({CaseOutcome.ANSWER, CaseOutcome.ERROR})
_REFUSED: Final = frozenset({CaseOutcome.ERROR, CaseOutcome.CLOSED})
_REFUSALS: Final = frozenset({int(ErrorCode.INVALID_REQUEST), int(ErrorCode.UNKNOWN_SERVER_ERROR)})
_COUNTS: Final = {
    ClassGroup.FRAME: 2,
    ClassGroup.HEADER: 2,
    ClassGroup.TRUNCATED: 2,
    ClassGroup.LENGTH: 3,
    ClassGroup.NULL: 1,
    ClassGroup.TAG: 2,
    ClassGroup.VALUE: 2,
    ClassGroup.PACE: 1,
}
"""Maximum number of cases of a group, per version."""
_FIXED_VALUES: Final = frozenset(
    {
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.JOIN_GROUP,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
    }
)
"""APIs whose values must stay: with other values, a request would change what is not the probe's, or leave a
group that the probe does not remove.
"""


def cases(
    frame: bytes, seed: int, *, usual: frozenset[CaseOutcome] = ANSWERED, harmless: bool = True
) -> list[Case]:
    """Return malformed variants of a well-formed request, about 15. Each version of an API gets other
    classes, so that its versions together have them all.

    `frame`: the request, with its length prefix. `usual`: outcomes of the well-formed request. `harmless`:
    False if no target may carry out the request; then only its frame and header are malformed. Raises
    ProtocolError, UnknownVersionError.
    """
    marked = mark(frame)
    return [
        found
        for group in ClassGroup
        for cls in _chosen(marked, group, seed, harmless=harmless)
        if (found := _case(cls, marked, seed, usual)) is not None
    ]


def _chosen(marked: Marked, group: ClassGroup, seed: int, *, harmless: bool) -> Iterable[Class]:
    """Return the classes of a group for this version: as many as the group permits, beginning where the
    version before has ended.
    """
    possible = [cls for cls in CLASSES if cls.group is group and _applies(cls, marked, harmless=harmless)]
    count = min(_COUNTS[group], len(possible))
    order = Random(f"{seed}/{marked.api_key}/{group}").sample(possible, len(possible))  # noqa: S311 - a sample, no secret
    return [order[(marked.version * count + index) % len(order)] for index in range(count)]


def _applies(cls: Class, marked: Marked, *, harmless: bool) -> bool:
    if not harmless and (
        cls.group not in (ClassGroup.FRAME, ClassGroup.HEADER)
        or cls.expected in (Expected.USUAL, Expected.EITHER)
    ):
        return False
    if cls.changes_values and marked.api_key in _FIXED_VALUES:
        return False
    return next(cls.make(marked), None) is not None


def _case(cls: Class, marked: Marked, seed: int, usual: frozenset[CaseOutcome]) -> Case | None:
    api = schema.api(marked.api_key)
    assert api is not None  # the frame was marked
    prefix = f"{api.name}/v{marked.version}/{cls.name}"
    place, data = Random(f"{seed}/{prefix}").choice(list(cls.make(marked)))  # noqa: S311 - a sample, no secret
    permitted, errors = _permitted(cls.expected, usual)
    return Case(
        name=f"{prefix}/{place}",
        api_key=marked.api_key,
        version=marked.version,
        data=data,
        permitted=permitted,
        errors=errors,
        ends_sending=cls.ends_sending,
        request=cls.explanation,
        reference=cls.reference,
        segment_bytes=cls.segment_bytes,
        dangerous=cls.dangerous,
    )


def _permitted(
    expected: Expected, usual: frozenset[CaseOutcome]
) -> tuple[frozenset[CaseOutcome], frozenset[int] | None]:
    if expected is Expected.CLOSED:
        return frozenset({CaseOutcome.CLOSED}), None
    if expected is Expected.REFUSED:
        return _REFUSED, _REFUSALS
    return (usual, None) if expected is Expected.USUAL else (usual | _REFUSED, None)
