"""The matrix of APIs and versions: which were seen, and how they fared."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from weir.protocol import schema
from weir.protocol.api import versions as known_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

UNKNOWN_MAX: Final = 20
"""Maximum number of APIs in the matrix that the schemas lack: a peer may invent 65,536."""
_COLUMNS_MIN: Final = 10


class Tone(StrEnum):
    """State of a cell or card, the gravest first. The value is a class of the style sheet."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    OK = "ok"
    UNSEEN = "unseen"
    """The schemas have the version, and the capture has no message of it."""
    NONE = "none"
    """The API has no such version."""


SIGNS: Final = {
    Tone.ERROR: "✗",
    Tone.WARNING: "!",
    Tone.NOTE: "i",
    Tone.OK: "✓",
    Tone.UNSEEN: "·",
    Tone.NONE: "",
}


class VersionCell(msgspec.Struct, frozen=True):
    """One version of an API."""

    tone: Tone
    version: str = ""
    text: str = ""
    marks: list[tuple[Tone, str]] = []
    """Numbers of findings or failures."""
    title: str = ""
    """Sentence with all counts."""
    id: str = ""
    """Fragment of a link to its cards or cases; "" without a link."""


class ApiRow(msgspec.Struct, frozen=True):
    """One API."""

    api_key: int
    name: str
    cells: list[VersionCell]


class Matrix(msgspec.Struct, frozen=True):
    """Cells by API and version."""

    columns: list[str]
    rows: list[ApiRow]
    left_out: int = 0
    """Number of APIs without a row."""


def cell_id(api: str, version: int) -> str:
    """Return the id of a cell, without spaces: "Fetch-v9", "API-999-v0"."""
    return f"{'-'.join(api.split())}-v{version}"


def matrix(
    names: Mapping[int, str],
    seen: Mapping[tuple[int, int], VersionCell],
    joined: Callable[[list[VersionCell]], VersionCell],
) -> Matrix:
    """Return the matrix. `names`: API key → name; `seen`: cells by API key and version; `joined` makes one
    cell of those of versions without a column (a peer may invent versions).
    """
    keys = sorted(names)
    by_api: dict[int, dict[int, VersionCell]] = {key: {} for key in keys}
    for (key, version), cell in seen.items():
        by_api[key][version] = cell
    known = [found for key in keys if (found := known_versions(key)) is not None]
    columns = range(max([_COLUMNS_MIN, *(found.max + 1 for found in known)]))
    has_others = any(version not in columns for found in by_api.values() for version in found)
    shown = [key for key in keys if known_versions(key) is not None]
    shown += [key for key in keys if known_versions(key) is None][:UNKNOWN_MAX]
    rows = []
    for key in shown:
        cells = [by_api[key].get(version) or _unseen(key, version) for version in columns]
        if has_others:
            others = [cell for version, cell in sorted(by_api[key].items()) if version not in columns]
            cells.append(joined(others) if others else VersionCell(Tone.NONE))
        rows.append(ApiRow(key, names[key], cells))
    headings = [str(version) for version in columns] + (["other"] if has_others else [])
    return Matrix(headings, rows, len(keys) - len(shown))


def _unseen(api_key: int, version: int) -> VersionCell:
    known = known_versions(api_key)
    if known is None or version not in known:
        return VersionCell(Tone.NONE, f"v{version}")
    api = schema.api(api_key)
    name = f"API {api_key}" if api is None else api.name
    return VersionCell(Tone.UNSEEN, f"v{version}", SIGNS[Tone.UNSEEN], title=f"{name} v{version}: not seen")
