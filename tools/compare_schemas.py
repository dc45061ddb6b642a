"""Changes of a Kafka release on the wire, compared with the schemas of the tree, and the handlers concerned.

docs/how-to/new-kafka-release.md says what to do with each kind of change.
"""

from __future__ import annotations

import re
import zipfile
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from tools.kafka_source import direct_layout, places, read_jar
from weir.protocol import schema
from weir.protocol.versions import VersionSet
from weir.proxy.handlers import plans

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tools.kafka_source import Place, SourceMessage
    from weir.protocol.schema import MessageSchema

Jar = dict[tuple[int, str], "SourceMessage"]
_FUNCTIONS: Final = (
    plans.ON_THE_WIRE,
    plans.FOR_CLIENTS,
    plans.FOR_BROKERS,
    plans.QUERYING_HANDLERS,
    plans.QUOTA_APIS,
    plans.QUOTA_APIS_PASSED,
    plans.THROTTLE_APIS,
    plans.THROTTLE_APIS_PASSED,
    plans.CHANGES_OF_TOPICS,
)


class Kind(StrEnum):
    """Kind of change between the schemas of the tree and those of a jar."""

    NEW_API = "new API"
    IDS = "names topics by id"
    FIELDS = "other fields"
    SAME = "same layout"
    RENAMED = "released fields renamed"
    CHANGED = "released version changed"


class SchemaChange(NamedTuple):
    """A change of one API; `versions` are those that it concerns."""

    api_key: int
    api: str
    versions: str
    kind: Kind
    details: str


def compare(jar: Path) -> list[SchemaChange]:
    """Return the differences between a kafka-clients jar and the schemas of the tree, by API key. Raises
    SchemaError if the jar cannot be read.
    """
    source, comments = read_jar(jar), _comments(jar)
    keys = sorted({key for key, _kind in source if key >= 0})
    return [change for key in keys for change in _changes(key, source, comments)]


def report(changes: list[SchemaChange]) -> str:
    """Return the changes as text: a paragraph each, with the modules of Weir's handlers of the API."""
    paragraphs = []
    for change in changes:
        heading = f"{change.api_key} {change.api} {change.versions}: {change.kind}"
        handlers = ", ".join(handlers_of(change.api_key)) or "none"
        paragraphs.append("\n  ".join(filter(None, [heading, change.details, f"handlers: {handlers}"])))
    return "\n".join(paragraphs)


def handlers_of(api_key: int) -> list[str]:
    """Return the modules of the functions that fill the plans of an API."""
    found = [table[api_key] for table in _FUNCTIONS if api_key in table]
    functions = chain.from_iterable(each if isinstance(each, tuple) else (each,) for each in found)
    return list(dict.fromkeys(function.__module__ for function in functions))


def _changes(key: int, source: Jar, comments: dict[str, str]) -> Iterator[SchemaChange]:
    request, response = source[key, "request"], source[key, "response"]
    name, known = request.name.removesuffix("Request"), schema.api(key)
    if known is None:
        yield SchemaChange(key, name, _spelled(request.versions), Kind.NEW_API, "")
        return
    for ours, theirs in ((known.request, request), (known.response, response)):
        yield from _released(key, ours, theirs)
    for version in sorted(request.versions - frozenset(known.request.versions)):
        yield _new_version(key, name, version, source, comments)


def _released(key: int, ours: MessageSchema, theirs: SourceMessage) -> Iterator[SchemaChange]:
    """Yield the changes of versions that the tree has already, one for versions that changed alike."""
    changed: dict[tuple[Kind, str], set[int]] = {}
    for version in theirs.versions & frozenset(ours.versions):
        before, after = places(ours.layout(version)), direct_layout(theirs, version)
        if before != after:
            unnamed = [[layout for _name, layout in _flat(each)] for each in (before, after)]
            kind = Kind.RENAMED if unnamed[0] == unnamed[1] else Kind.CHANGED
            changed.setdefault((kind, _difference(before, after)), set()).add(version)
    for (kind, difference), versions in changed.items():
        yield SchemaChange(key, theirs.name, _spelled(frozenset(versions)), kind, difference)


def _new_version(key: int, name: str, version: int, source: Jar, comments: dict[str, str]) -> SchemaChange:
    details, ids = [], False
    for kind in ("request", "response"):
        message = source[key, kind]
        before = direct_layout(message, version - 1) if version - 1 in message.versions else []
        after = direct_layout(message, version)
        difference = _difference(before, after)
        ids |= kind == "request" and re.search(r"\+\S*topic_id\b", difference) is not None
        details += [f"{kind}: {difference}"] if difference else []
        details += [f"{kind}: {said}"] if (said := _said(comments.get(message.name, ""), version)) else []
    changed = any(": +" in detail or ": -" in detail for detail in details)
    what = Kind.IDS if ids else Kind.FIELDS if changed else Kind.SAME
    return SchemaChange(key, name, str(version), what, "\n  ".join(details))


def _difference(before: list[Place], after: list[Place]) -> str:
    old, new = dict(_flat(before)), dict(_flat(after))
    added = [
        f"+{path}" for path in new if path not in old and path.rpartition(".")[0] not in new.keys() - old
    ]
    gone = [f"-{path}" for path in old if path not in new and path.rpartition(".")[0] not in old.keys() - new]
    other = [f"{path} differs" for path in new if path in old and old[path] != new[path]]
    return " ".join(added + gone + other)


def _flat(fields: list[Place], prefix: str = "") -> Iterator[tuple[str, Place]]:
    for name, *layout, inner in fields:
        yield f"{prefix}{name}", tuple(layout)
        yield from _flat(inner or [], f"{prefix}{name}.")


def _comments(jar: Path) -> dict[str, str]:
    """Return the comments of each schema in a jar, by message, as one line."""
    with zipfile.ZipFile(jar) as archive:
        texts = {
            entry.removeprefix("common/message/").removesuffix(".json"): archive.read(entry).decode()
            for entry in archive.namelist()
            if entry.startswith("common/message/") and entry.endswith(".json")
        }
    return {name: " ".join(re.findall(r"^ *// ?(.*)", text, re.MULTILINE)) for name, text in texts.items()}


def _said(comments: str, version: int) -> str:
    """Return the schema's own sentence about a version; empty if it has no sentence about the version."""
    found = re.search(rf"\bVersion {version} .*?(?=\bVersion \d|  |Supported errors|$)", comments)
    return found[0].strip() if found else ""


def _spelled(versions: frozenset[int]) -> str:
    return str(VersionSet.of(versions))
