"""Checks a quota file as a whole: all mistakes at once, and entries that are valid but match no client.

>>> check('[[quota]]\\nuser = "User:alice"\\nproducer_byte_rate = 1\\n').warnings
['[[quota]] entry 1 (line 1): no client is user "User:alice"; leave out User:']
"""

# mypyc: skip, because only the command line calls it.
from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.quotas.replication.throttles import ResourceType
from weir.quotas.table.ends import in_force_at
from weir.quotas.table.entities import Entity, Prefix
from weir.quotas.table.group_entry import GroupEntry, claimable_floors, floor_faults
from weir.quotas.table.quota_entry import Entry, QuotaFileError, shown
from weir.quotas.table.quota_file import read, scan, table_of
from weir.quotas.table.quota_kind import STORAGE_MARKS, QuotaKey
from weir.quotas.table.replication_entry import Resource
from weir.quotas.table.times import now_utc, written_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime


_NEEDS_LOGIN: Final = (
    "a storage budget needs a login of Weir's own with DESCRIBE on the cluster; set upstream_sasl_*, "
    "unless every client may describe it"
)


class QuotaFileFaults(NamedTuple):
    """The faults of a quota file, each as one line."""

    mistakes: list[str]
    """Reasons for which Weir refuses the file; at most one per entry."""
    warnings: list[str]
    """Entries that Weir accepts, but that have ended, match no client or no topic, or have a floor above a
    limit in shadow, with the reason.
    """
    of_storage: list[str]
    """Storage budgets, which need a login of Weir's own."""


def check(text: str, now: datetime | None = None) -> QuotaFileFaults:
    """Return the mistakes and warnings of a quota file, given its text. `now`: None for the present time."""
    now = now or now_utc()
    findings = QuotaFileFaults([], [], [])
    try:
        for place, entry in scan(text):
            if isinstance(entry, QuotaFileError):
                findings.mistakes.append(str(entry))
                continue
            if isinstance(entry, GroupEntry):
                users = (member.name for member in entry.members if member.part == "user")
                reasons = chain.from_iterable(_unmatched(Entity(user)) for user in users)
            elif isinstance(entry, Entry):
                if not entry.rates.keys().isdisjoint(STORAGE_MARKS):
                    findings.of_storage.append(f"{place()}: {_NEEDS_LOGIN}")
                reasons = chain(_unmatched(entry.entity), _ended(entry, now), _incomplete(entry))
            else:
                reasons = chain(_no_topic(entry.resource))
            findings.warnings.extend(f"{place()}: {why}" for why in reasons)
        if not findings.mistakes:
            table = in_force_at(table_of(read(text)), now)  # raises for mistakes that lie in several entries
            findings.warnings.extend(claimable_floors(table))
            if table.shadow:
                findings.warnings.extend(
                    f"in shadow, {why}" for why in floor_faults(table.in_shadow(), shadow=True)
                )
    except QuotaFileError as error:
        findings.mistakes.append(str(error))
    return findings


def _ended(entry: Entry, now: datetime) -> Iterator[str]:
    until = entry.options.until
    if until is not None and until <= now:
        yield f"it has ended at {written_time(until)}; remove it"


def _incomplete(entry: Entry) -> Iterator[str]:
    """Yield the reason why a storage budget throttles nobody."""
    marks, over = [key.value for key in STORAGE_MARKS if key in entry.rates], QuotaKey.OVER_BYTE_RATE
    if marks and over not in entry.rates:
        yield f"{marks[0]} is only told, and throttles nobody; add {over.value}"
    elif over in entry.rates and not marks:
        yield f"{over.value} has no effect alone; add {' or '.join(key.value for key in STORAGE_MARKS)}"


def _unmatched(entity: Entity) -> Iterator[str]:
    """Yield the reasons why an entity matches no client. Names in Kafka's ACLs have a principal's type
    (`User:`) and wildcards (`*`); names of clients have neither.
    """
    user, client_id = entity.user, entity.client_id
    if isinstance(user, str) and user.startswith("User:"):
        yield f"no client is user {shown(user)}; leave out User:"
    elif user == "*":
        yield 'no client is user "*"; write user = "<default>"'
    if client_id == "*":
        yield 'no client has client_id "*"; write client_id = "<default>"'
    elif isinstance(client_id, str) and client_id.endswith("*"):
        yield f"client_id {shown(client_id)} is no pattern; write client_id_prefix = {shown(client_id[:-1])}"
    elif isinstance(client_id, Prefix) and client_id.start.endswith("*"):
        yield f"client_id_prefix {shown(client_id.start)} is no pattern; leave out the *"
    if entity.topic is not None:
        yield from _no_topic(Resource(ResourceType.TOPIC, entity.topic))
    if entity.topic_prefix is not None and entity.topic_prefix.endswith("*"):
        yield f"topic_prefix {shown(entity.topic_prefix)} is no pattern; leave out the *"


def _no_topic(resource: Resource) -> Iterator[str]:
    """Yield the reason why no topic has the name of this resource, if the name looks like a pattern."""
    if resource.kind is ResourceType.TOPIC and resource.name.endswith("*"):
        yield f"no topic is called {shown(resource.name)}; write an entry for each topic"
