"""Find names that get no entry, because they stand for no client or for several, or because a quota file
cannot contain them.
"""

from __future__ import annotations

import re
from typing import Final

from weir.quotas.table.bounded_names import OVERFLOW
from weir.quotas.table.quota_entry import DEFAULT_MARKER

SHORTENED: Final = re.compile(r".{191}~[0-9a-f]{64}", re.DOTALL)
"""Pattern of the names that `quotas.table.bounded_names.shortened` makes; no client has such a name."""

WITHOUT: Final = "without a name"
LITERAL_DEFAULT: Final = f"called {DEFAULT_MARKER}"
OVERFLOW_NAME: Final = f"counted as {OVERFLOW}"
LONG: Final = "with a name that was shortened"
NO_TEXT: Final = "with a name that is no text"


def left_out(user: str | None, client_id: str | None) -> str | None:
    """Return the reason why an entity cannot have an entry, because of its user or client-id; None if it can
    have one. A part that the entity does not have is None.
    """
    reasons = [_unsayable(name) for name in (user, client_id) if name is not None]
    return next((reason for reason in reasons if reason is not None), None)


def _unsayable(name: str) -> str | None:
    if name == "":
        return WITHOUT
    if "\ufffd" in name:
        return NO_TEXT
    if name == DEFAULT_MARKER:
        return LITERAL_DEFAULT
    if name == OVERFLOW:
        return OVERFLOW_NAME
    return LONG if SHORTENED.fullmatch(name) else None
