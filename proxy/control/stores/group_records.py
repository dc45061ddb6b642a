"""Groups of clients as records of the quota topic: one record per group, with its members and its parent.

    key     {"group":"payments"}
    value   {"parent":"retail","users":["alice","svc-pay-*"],"version":1}

The value has the keys of a `[[group]]` in a quota file, sorted and without spaces. A broker takes records of
a megabyte (`max.message.bytes`), which is about 50,000 names. Weirs before these records skip them.

Two Weirs may write at once what none would have written after the other. So readers decide: a member of two
groups is in the one whose record is later, and a parent that is unknown, or leads to a circle or too deep, is
left out. All Weirs read the same records, and decide alike.
"""

from __future__ import annotations

from typing import Final

import msgspec

from weir.protocol.sasl import NAME_BYTES_MAX
from weir.proxy.control.stores.record import VERSION, ProducerRecord, RecordError, version_of
from weir.quotas.table.group_entry import GroupEntry, group_values, groups_of, read_group
from weir.quotas.table.groups import NO_GROUPS, QuotaGroups
from weir.quotas.table.quota_entry import EntryError

PREFIX: Final = b'{"group":'
"""Start of the key of each record of a group, and of no other record."""
MEMBERS_MAX: Final = 500_000
"""Maximum number of members of all groups, and of groups."""

_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class _GroupRecordKey(msgspec.Struct, forbid_unknown_fields=True):
    group: str


_KEY_DECODER: Final = msgspec.json.Decoder(_GroupRecordKey)
_VALUE_DECODER: Final = msgspec.json.Decoder(dict[str, int | str | list[str]])


def write(entry: GroupEntry, *, removes: bool = False) -> ProducerRecord:
    """Return the record of a group, or with `removes` the one that removes it. Raises RecordError for a name
    that is not valid Unicode.
    """
    values: dict[str, int | str | list[str]] = {**group_values(entry), "version": VERSION}
    del values["name"]
    try:
        key = _ENCODER.encode(_GroupRecordKey(entry.name))
        return ProducerRecord(key, None if removes else _ENCODER.encode(values))
    except UnicodeEncodeError:
        raise RecordError(f"{str(entry)!a} has a name that is not valid Unicode: rename it") from None


def read(key: bytes, value: bytes | None) -> GroupEntry:
    """Return the group of a record, without members if `value` is None. Raises RecordError."""
    try:
        name = _KEY_DECODER.decode(key).group
        if _ENCODER.encode(_GroupRecordKey(name)) != key or len(name.encode()) > NAME_BYTES_MAX:
            raise RecordError("its key is not spelled as Weir spells it")
        if value is None:
            return GroupEntry(name, ())
        version_of(value)
        values = _VALUE_DECODER.decode(value)
        del values["version"]
        return read_group({**values, "name": name})
    except EntryError as error:
        raise RecordError(f"its group: {error}"[:200]) from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise RecordError(f"it is none of Weir's groups: {error}") from None


class StoredGroups:
    """The groups that result from the records read so far."""

    def __init__(self) -> None:
        self._entries: dict[str, GroupEntry] = {}
        """Group → its latest record, in the order of the records."""
        self._size = 0
        self._groups: QuotaGroups | None = NO_GROUPS

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Replace a group by that in the value; remove it without one. Raises RecordError, and changes
        nothing, if the record cannot be used.
        """
        entry = read(key, value)
        before = self._entries.get(entry.name)
        size = self._size - (0 if before is None else 1 + len(before.members))
        if value is not None:
            size += 1 + len(entry.members)
        if size > MEMBERS_MAX:
            raise RecordError(f"there are {MEMBERS_MAX} members of groups already")
        self._size, self._groups = size, None
        self._entries.pop(entry.name, None)
        if value is not None:
            self._entries[entry.name] = entry

    def groups(self) -> QuotaGroups:
        """Return all groups; the same object if no record has come since the former call."""
        if self._groups is None:
            self._groups = _sound(groups_of(self._entries.values()))
        return self._groups


def _sound(groups: QuotaGroups) -> QuotaGroups:
    """Return the groups without the parents that cannot be."""
    return groups.updated({}, {error.group: "" for error in groups.faults()})
