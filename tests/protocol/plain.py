"""Values as plain dicts: what other libraries' classes are filled from."""

from __future__ import annotations

from typing import Any

import msgspec


def plain(value: object) -> Any:
    """A message as dicts, lists and primitives."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list):
        return [plain(element) for element in value]
    return value
