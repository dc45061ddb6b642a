"""The quota file: parses its text to a `QuotaTable`, and renders a table as text.

    [[quota]]
    user = "alice"                   # a principal's name, without "User:"
    client_id = "<default>"          # every client-id of alice that has no quota of its own
    producer_byte_rate = 1_048_576   # bytes per second
    consumer_byte_rate = "2MiB"      # 2^20 bytes each; 1MB is 10^6
    controller_mutation_rate = 0.5   # partitions per second, created, added or deleted
    request_percentage = 12.5        # percent of one thread's time
    pacing = "smooth"                # byte rates are held evenly
    scope = "cluster"                # one budget for all brokers
    until = 2026-12-01T06:00:00Z     # as if deleted from then on

    [[group]]                        # several clients, which may have a [[quota]] together
    name = "payments"
    users = ["alice", "svc-pay-*"]

    [[replication]]                  # throttles of replication (KIP-73)
    broker = 1
    leader.replication.throttled.rate = "10MB"

The file is TOML; `quota_entry` and `replication_entry` have the keys of an entry. An entity may have one
entry, and in addition one with `mode = "shadow"`; a broker or topic may have one entry. An error raises
`QuotaFileError`, whose message is one line: the place (`entry_places`), the error, and the remedy. If the
search for the place could be wrong (headers in a multi-line string, or `quota = [...]` in one line), the
message has only the entry's number.

>>> table = parse('[[quota]]\\nuser = "alice"\\nproducer_byte_rate = 1000\\n')
>>> print(render(table), end="")
[[quota]]
user = "alice"
producer_byte_rate = 1000
"""

# mypyc: skip, because it reads and writes quota files; no request calls it.
from __future__ import annotations

import tomllib
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from weir.quotas.table.entry_places import EntryLocator
from weir.quotas.table.group_entry import (
    GROUP,
    GroupEntry,
    check_groups,
    concerns_groups,
    group_entries,
    group_lines,
    groups_of,
    read_group,
)
from weir.quotas.table.groups import GroupError, Member
from weir.quotas.table.options import PLAIN, Options
from weir.quotas.table.quota_entry import (
    ENTRY,
    Entry,
    EntryError,
    QuotaFileError,
    entry_lines,
    read_entry,
    shown,
)
from weir.quotas.table.quota_table import Quota, QuotaTable
from weir.quotas.table.replication_entry import (
    REPLICATION,
    ReplicationEntry,
    read_replication,
    replication_entries,
    replication_lines,
    throttles_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

__all__ = [
    "Entries",
    "QuotaFileError",
    "entries_of",
    "parse",
    "read",
    "render",
    "render_entries",
    "scan",
    "table_of",
]

E = TypeVar("E", Entry, GroupEntry, ReplicationEntry)
AnyEntry: TypeAlias = "Entry | GroupEntry | ReplicationEntry"


class Entries(NamedTuple):
    """All entries of a quota file, in the order of the file."""

    quotas: list[Entry]
    replication: list[ReplicationEntry]
    groups: list[GroupEntry]


def parse(text: str) -> QuotaTable:
    """Return the table of the quotas in the text of a quota file. Raises QuotaFileError."""
    return table_of(read(text))


def table_of(entries: Entries) -> QuotaTable:
    values: tuple[dict[Quota, float], dict[Quota, float]] = ({}, {})
    options: tuple[dict[Quota, Options], dict[Quota, Options]] = ({}, {})
    quotas, replication, groups = entries
    for entity, is_shadow, rates, its_options in quotas:
        values[is_shadow].update({(entity, key): rate for key, rate in rates.items()})
        if its_options != PLAIN:
            options[is_shadow].update({(entity, key): its_options for key in rates})
    return QuotaTable(*values, *options, replication=throttles_of(replication), groups=groups_of(groups))


def read(text: str, *, is_whole: bool = True) -> Entries:
    """Return the entries of a quota file, given its text, or a part of it. Raises QuotaFileError."""
    entries = Entries([], [], [])
    for _place, entry in scan(text):
        _keep(entry, entries)
    if is_whole:
        _check_whole(entries)
    return entries


def _keep(entry: AnyEntry | QuotaFileError, entries: Entries) -> None:
    if isinstance(entry, Entry):
        entries.quotas.append(entry)
    elif isinstance(entry, ReplicationEntry):
        entries.replication.append(entry)
    elif isinstance(entry, GroupEntry):
        entries.groups.append(entry)
    else:
        raise entry


def _check_whole(entries: Entries) -> None:
    """Raise QuotaFileError if entries do not fit together."""
    try:
        groups_of(entries.groups).check()
    except GroupError as error:
        raise QuotaFileError(str(error)) from None
    if concerns_groups((entry.entity, key) for entry in entries.quotas for key in entry.rates):
        check_groups(table_of(entries))


def scan(text: str) -> Iterator[tuple[Callable[[], str], AnyEntry | QuotaFileError]]:
    """Yield (function that returns the entry's place, entry) for each entry of a quota file: first the
    quotas, then the replication throttles, then the groups, each in the order of the file; instead of an
    invalid entry its error. Raises QuotaFileError if the text has no entries.
    """
    document = _toml(text)
    quotas, throttles = _tables(document, ENTRY), _tables(document, REPLICATION)
    groups = _tables(document, GROUP)
    for unknown in document:
        kind, entry = ENTRY, "quota"
        close = get_close_matches(unknown, [ENTRY, REPLICATION, GROUP], n=1)
        if close in ([REPLICATION], [GROUP]):
            kind, entry = close[0], "throttle" if close == [REPLICATION] else "group"
        raise QuotaFileError(f"unknown key {shown(unknown)}; begin each {entry} with [[{kind}]]")
    locator = EntryLocator(text, ENTRY, len(quotas))
    yield from _scan(quotas, locator, read_entry, lambda entry: (entry.entity, entry.is_shadow))
    locator = EntryLocator(text, REPLICATION, len(throttles))
    yield from _scan(throttles, locator, read_replication, lambda entry: entry.resource)
    locator = EntryLocator(text, GROUP, len(groups))
    yield from _once(_scan(groups, locator, read_group, lambda entry: entry.name))


def _once(
    groups: Iterable[tuple[Callable[[], str], GroupEntry | QuotaFileError]],
) -> Iterator[tuple[Callable[[], str], GroupEntry | QuotaFileError]]:
    """Yield the groups, and errors instead of groups with members that others have, too."""
    seen: dict[Member, Callable[[], str]] = {}
    for place, entry in groups:
        if isinstance(entry, GroupEntry):
            again = [member for member in entry.members if member in seen]
            if again or len(set(entry.members)) < len(entry.members):
                where = seen[again[0]]() if again else "this one"
                twice = again[0] if again else next(m for m in entry.members if entry.members.count(m) > 1)
                yield place, QuotaFileError(f"{place()}: {twice} is a member already, of {where}; remove one")
                continue
            seen.update(dict.fromkeys(entry.members, place))
        yield place, entry


def _scan(
    tables: list[dict[str, object]],
    locator: EntryLocator,
    read_one: Callable[[Mapping[str, object]], E],
    subject: Callable[[E], Hashable],
) -> Iterator[tuple[Callable[[], str], E | QuotaFileError]]:
    """Yield the entries of one kind like `scan`. `subject` returns the part of an entry that only one entry
    may have.
    """
    seen: dict[Hashable, int] = {}
    for number, table in enumerate(tables, start=1):
        place = partial(locator.entry, number)
        try:
            entry = read_one(table)
        except EntryError as error:
            yield place, QuotaFileError(f"{locator.key(number, error.key)}: {error}")
            continue
        first = seen.setdefault(subject(entry), number)
        if first != number:
            where = f"{locator.entry(number)}: {entry} has an entry already, {locator.entry(first)}"
            yield place, QuotaFileError(f"{where}; merge the two")
        else:
            yield place, entry


def _tables(document: dict[str, object], kind: str) -> list[dict[str, object]]:
    """Remove the entries of one kind from the document, and return them. Raises QuotaFileError."""
    tables = document.pop(kind, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise QuotaFileError(f"{kind!r} is not a list of tables; begin each entry with [[{kind}]]")
    return tables


def render(table: QuotaTable) -> str:
    """Return a quota file that `parse` reads back as an equal table: first the groups, then the
    enforced entries, the shadow entries, and the replication throttles.

    Raises QuotaFileError if the format cannot represent a quota: a name that is literally `<default>`, a lone
    surrogate in a name, a byte rate with a fraction.
    """
    groups = group_entries(table.groups)
    return render_entries([*groups, *entries_of(table), *replication_entries(table.replication)])


def entries_of(table: QuotaTable) -> list[Entry]:
    """Return the quota entries of a table, the shadow entries last."""
    enforced = [Entry(entity, False, rates, table.options_of(entity)) for entity, rates in table.entities()]
    shadow = (
        Entry(entity, True, rates, table.options_of(entity, shadow=True))
        for entity, rates in table.shadow_entities()
    )
    return [*enforced, *shadow]


def render_entries(entries: Iterable[AnyEntry]) -> str:
    """Return the text of entries, separated by blank lines. Raises QuotaFileError like `render`."""
    return "\n".join("".join(f"{line}\n" for line in _lines(entry)) for entry in entries)


def _lines(entry: AnyEntry) -> Iterator[str]:
    if isinstance(entry, GroupEntry):
        return group_lines(entry)
    return entry_lines(entry) if isinstance(entry, Entry) else replication_lines(entry)


def _toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    # Numbers of 5000 digits raise ValueError, deep nesting raises RecursionError.
    except (ValueError, RecursionError) as error:
        last = text.count("\n") + 1
        what = str(error).replace("(at end of document)", f"(at line {last}, the end)")
        raise QuotaFileError(f"not valid TOML: {' '.join(what.split())}; correct this place") from error
