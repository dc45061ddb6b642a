"""Names that clients choose, bounded, for metrics and records."""

from __future__ import annotations

import hashlib
from typing import Final

from weir.quotas import QuotaKey, QuotaTable, Tags

NAME_CHARS_MAX: Final = 200
"""Maximum number of characters of a user or client-id in a label or record. Kafka allows client-ids of 32 KB.
"""


def shortened(name: str) -> str:
    """Return a name for a label or a record: at most about `NAME_CHARS_MAX` characters, valid Unicode, and
    different for different names.
    """
    plain = name.encode("utf-8", "replace").decode("utf-8")
    if len(name) <= NAME_CHARS_MAX and plain == name:
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{plain[:NAME_CHARS_MAX]}…{digest}"


def entry_name(table: QuotaTable, key: QuotaKey, tags: Tags, *, shadow: bool) -> str:
    """Return the entity of the quota entry that sets the limit of these clients, shortened; empty if no entry
    does.
    """
    entity = table.entry_of(key, tags, shadow=shadow)
    return "" if entity is None else shortened(str(entity))
