"""Read Kafka's message schemas from a kafka-clients jar: common/message/*.json, JSON with // comments.

`read_jar` returns the requests, responses and headers, with names in snake case and versions as plain sets.
`direct_layout` returns the wire layout of one version, computed from the jar's JSON alone. The two functions
share no code except for names and version ranges, so that the layout can verify the schemas that were made
from `read_jar`.
"""

from __future__ import annotations

import json
import re
import zipfile
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weir.protocol.schema import PRIMITIVES
from weir.protocol.versions import VersionRange

if TYPE_CHECKING:
    from pathlib import Path

    from weir.protocol import schema

Json = dict[str, Any]
Versions = frozenset[int]

_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')
_WORD_STARTS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# Names that changed between releases while their place on the wire did not: message, old name, new name.
_RENAMED: Final = {
    ("VoteRequest", "CandidateEpoch"): "ReplicaEpoch",
    ("VoteRequest", "CandidateId"): "ReplicaId",
    ("VoteRequest", "CandidateDirectoryId"): "ReplicaDirectoryId",
    ("TxnOffsetCommitRequest", "GenerationId"): "GenerationIdOrMemberEpoch",
    ("ListClientMetricsResourcesResponse", "ClientMetricsResources"): "ConfigResources",
    ("ListClientMetricsResourcesResponse", "ClientMetricsResource"): "ConfigResource",
    ("ListClientMetricsResourcesResponse", "Name"): "ResourceName",
}

_KEYS: Final = frozenset(
    [
        "about",
        "default",
        "entityType",
        "fields",
        "flexibleVersions",
        "ignorable",
        "mapKey",
        "name",
        "nullableVersions",
        "tag",
        "taggedVersions",
        "type",
        "versions",
        "zeroCopy",
    ]
)


class SchemaError(Exception):
    """Raised for a schema that the importer cannot follow; the message names the message, the field and the
    broken rule.
    """

    def __init__(self, message: str, field: str, rule: str) -> None:
        super().__init__(f"{message}, field {field or '(none)'}: {rule}")


class SourceField(msgspec.Struct, kw_only=True):
    """A field of a message schema, read from one jar. All its versions are versions of its message."""

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: bool | int | float | str | msgspec.UnsetType | None
    ignorable: bool
    map_key: bool
    entity_type: str | None
    flexible: Versions | None


class SourceMessage(msgspec.Struct, kw_only=True):
    """A message schema (request, response or header), read from one jar."""

    name: str
    kind: str
    api_key: int
    versions: Versions
    flexible: Versions
    fields: list[SourceField]
    structs: dict[str, list[SourceField]]
    unstable: Versions
    """Versions that this jar has not released: their layout may still change."""
    raw: Json


def snake_case(name: str) -> str:
    """Return Kafka's CamelCase name in snake case: ThrottleTimeMs, isKRaftController and ISR give
    throttle_time_ms, is_kraft_controller and isr.
    """
    return _WORD_STARTS.sub("_", name.replace("KRaft", "Kraft")).lower()


def read_jar(jar: Path) -> dict[tuple[int, str], SourceMessage]:
    """Return all requests, responses and headers of a kafka-clients jar, by API key and kind (headers by
    name). Raises SchemaError.
    """
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for entry in sorted(archive.namelist()):
            if entry.startswith("common/message/") and entry.endswith(".json"):
                raw = json.loads(_COMMENT.sub(r"\1", archive.read(entry).decode()))
                if raw["type"] != "data":
                    message = _message(raw)
                    key = message.name if message.kind == "header" else message.kind
                    found[message.api_key, key] = message
    for (api_key, kind), message in found.items():
        if kind == "request" and message.raw.get("latestVersionUnstable") and message.versions:
            message.unstable = frozenset({max(message.versions)})
            found[api_key, "response"].unstable = message.unstable
    return found


def _expand(text: str, within: Versions) -> Versions:
    return frozenset(version for version in within if version in VersionRange.parse(text))


def _message(raw: Json) -> SourceMessage:
    versions = frozenset(VersionRange.parse(raw["validVersions"]))
    structs: dict[str, list[SourceField]] = {}
    message = SourceMessage(
        name=raw["name"],
        kind=raw["type"],
        api_key=raw.get("apiKey", -1),
        versions=versions,
        flexible=_expand(raw.get("flexibleVersions", "none"), versions),
        fields=[],
        structs=structs,
        unstable=frozenset(),
        raw=raw,
    )
    for common in raw.get("commonStructs", []):
        structs[_renamed(message.name, common["name"])] = []
    for common in raw.get("commonStructs", []):
        structs[_renamed(message.name, common["name"])] += _fields(message, common["fields"])
    message.fields = _fields(message, raw.get("fields", []))
    return message


def _renamed(message: str, name: str) -> str:
    return _RENAMED.get((message, name), name)


def _fields(message: SourceMessage, raw: list[Json]) -> list[SourceField]:
    return [_field(message, field) for field in raw]


def _field(message: SourceMessage, raw: Json) -> SourceField:
    def versions(key: str) -> Versions:
        return _expand(raw.get(key, "none"), message.versions)

    if unknown := raw.keys() - _KEYS:
        raise SchemaError(message.name, raw["name"], f"unknown keys {sorted(unknown)}")
    type_ = _renamed(message.name, raw["type"].removeprefix("[]"))
    if type_ in PRIMITIVES:
        if "fields" in raw:
            raise SchemaError(message.name, raw["name"], f"a {type_} cannot have fields")
    elif "fields" in raw:
        if type_ in message.structs:
            raise SchemaError(message.name, raw["name"], f"struct {type_} is defined twice")
        message.structs[type_] = []
        message.structs[type_] += _fields(message, raw["fields"])
    elif type_ not in message.structs:
        raise SchemaError(message.name, raw["name"], f"unknown type {type_}")
    field = SourceField(
        name=snake_case(_renamed(message.name, raw["name"])),
        type=type_,
        is_array=raw["type"].startswith("[]"),
        versions=versions("versions"),
        nullable=versions("nullableVersions") & versions("versions"),
        tagged=versions("taggedVersions"),
        tag=int(raw["tag"]) if "tag" in raw else None,
        default=_default(message.name, raw),
        ignorable=raw.get("ignorable", False),
        map_key=raw.get("mapKey", False),
        entity_type=raw.get("entityType"),
        flexible=versions("flexibleVersions") if "flexibleVersions" in raw else None,
    )
    _check(message, field)
    return field


def _check(message: SourceMessage, field: SourceField) -> None:
    """Raise SchemaError if the field breaks a rule of Kafka's generator that the codec relies on."""
    if not field.tagged <= field.versions or not field.tagged <= message.flexible:
        raise SchemaError(message.name, field.name, "tagged in a version that lacks it or is not flexible")
    if (field.tag is None) != (not field.tagged) and message.versions:
        raise SchemaError(message.name, field.name, "tag and taggedVersions belong together")
    if field.default is None and not field.nullable and field.type != "records":
        raise SchemaError(message.name, field.name, "default null, but nullable in no version")


def _default(message: str, raw: Json) -> bool | int | float | str | msgspec.UnsetType | None:
    """Return a field's default as a Python value; UNSET if it equals the default of the type. Raises
    SchemaError.
    """
    text, type_ = raw.get("default", ""), raw["type"]
    if type_ == "records":
        return None  # Kafka's generator gives records this default whatever the schema says
    if text == "":
        return msgspec.UNSET
    if text == "null":
        return None
    if type_ == "string":
        return str(text)
    if type_ == "bool":
        return True if str(text).lower() == "true" else msgspec.UNSET
    if type_ == "float64":
        return float(text) or msgspec.UNSET
    if "int" in type_ and not type_.startswith("[]"):
        return int(str(text), 0) or msgspec.UNSET
    raise SchemaError(message, raw["name"], f"default {text!r} for a {type_}")


Place = tuple[Any, ...]
"""Layout of a field: (name, type, is array, nullable, compact, tag, places of the struct's fields or
None).
"""


def direct_layout(message: SourceMessage, version: int) -> list[Place]:
    """Return the layout of a version according to the jar's own JSON: fields in order, then tagged fields by
    tag.
    """
    raw = message.raw
    common = {struct["name"]: struct["fields"] for struct in raw.get("commonStructs", [])}

    def has(text: Any) -> bool:
        return version in VersionRange.parse(text)

    def places(fields: list[Json]) -> list[Place]:
        laid = [place(field) for field in fields if has(field["versions"])]
        return sorted(laid, key=lambda found: (found[5] is not None, found[5] or 0))

    def place(field: Json) -> Place:
        type_ = field["type"].removeprefix("[]")
        inner = field["fields"] if "fields" in field else common.get(type_)
        return (
            snake_case(_renamed(message.name, field["name"])),
            _renamed(message.name, type_),
            field["type"].startswith("[]"),
            has(field.get("nullableVersions", "none")),
            has(field.get("flexibleVersions", raw["flexibleVersions"])),
            int(field["tag"]) if has(field.get("taggedVersions", "none")) else None,
            None if inner is None else places(inner),
        )

    return places(raw["fields"])


def places(layout: schema.Layout) -> list[Place]:
    """Return a layout of the tree's schemas in the form of `direct_layout`."""
    return [
        (
            slot.name,
            slot.type,
            slot.is_array,
            slot.nullable,
            slot.compact,
            slot.tag,
            None if slot.struct is None else places(slot.struct),
        )
        for slot in layout.fields + layout.tagged
    ]
