"""Schemas of Kafka's messages: fields, and the layout of each version.

`api(key)` returns an API's request and response schema, `header(...)` a header's; each is read from
`schemas/` at its first use. A `MessageSchema` covers all versions; `MessageSchema.layout(version)` is the
layout of one version: the fields in order, then the tagged fields. This module does not handle bytes.

`tools/import_schemas.py` writes the files from Kafka's own schemas (flexible versions, tags: KIP-482).
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final, Literal

import msgspec

from weir.protocol.versions import VersionRange, VersionSet

PRIMITIVES: Final = frozenset(
    {
        "bool",
        "int8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "float64",
        "uuid",
        "string",
        "bytes",
        "records",
    }
)

Kind = Literal["request", "response", "header"]
Default = bool | int | float | str | None
"""Default of a field in the schemas. The default of arrays, structs and bytes is None or UNSET (empty), of
uuids UNSET.
"""


class Field(msgspec.Struct, frozen=True):
    """One field of a message or struct, for all versions."""

    name: str
    """Name of the field in snake_case."""
    type: str
    """Name of a primitive type (`PRIMITIVES`) or of a struct; for an array, type of its elements."""
    is_array: bool
    versions: VersionSet
    nullable: VersionSet
    tagged: VersionSet
    """Versions in which the field is a tagged field."""
    tag: int | None
    default: Default | msgspec.UnsetType
    """Default value; UNSET for the type's zero value (0, "", empty, a struct of defaults)."""
    ignorable: bool
    """True if encoding a version that lacks the field may drop its value."""
    map_key: bool
    entity_type: str | None
    flexible: VersionSet | None
    """Versions in which the field's length is compact; None if they are the message's flexible versions. Only
    the client-id of a request header differs.
    """

    @property
    def is_struct(self) -> bool:
        """True if the field, or each element of an array, is a struct."""
        return self.type not in PRIMITIVES


class Slot(msgspec.Struct, frozen=True):
    """A field in one version of its message: the field with the layout that this version gives it."""

    field: Field
    nullable: bool
    compact: bool
    """True if the length of the field (string, bytes or array) is written as an unsigned varint of length +
    1, instead of an int16 or int32.
    """
    tag: int | None
    """Tag of the field; None if the field is not a tagged field in this version."""
    struct: Layout | None
    """Layout of the struct, or of the array's elements; None for primitive types."""

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def type(self) -> str:
        """Name of a primitive type or of a struct; for an array, type of its elements."""
        return self.field.type

    @property
    def is_array(self) -> bool:
        return self.field.is_array


class Layout(msgspec.Struct, frozen=True):
    """The layout of one version of a message or struct."""

    name: str
    """Name of the message or struct."""
    version: int
    flexible: bool
    """True if tagged fields follow the other fields."""
    fields: tuple[Slot, ...]
    """Fields in wire order, without tagged fields."""
    tagged: tuple[Slot, ...]
    """Tagged fields by ascending tag."""
    absent: tuple[Field, ...]
    """Fields that this version lacks."""


class MessageSchema(msgspec.Struct, frozen=True, dict=True):
    """A message in all its versions."""

    name: str
    """Kafka's name of the message, such as MetadataRequest."""
    kind: Kind
    api_key: int
    """API key of the message; -1 for headers."""
    versions: VersionRange
    flexible: VersionSet
    fields: tuple[Field, ...]
    structs: dict[str, tuple[Field, ...]]
    """CamelCase name → fields, for the structs at any depth; names are unique within a message."""

    def layout(self, version: int) -> Layout:
        """Return the layout of `version` (cached). Raises ValueError if the message lacks the version."""
        layouts: dict[int, Layout] = self.__dict__.setdefault("layouts", {})
        if version not in layouts:
            if version not in self.versions:
                raise ValueError(f"{self.name} has versions {self.versions}, not {version}")
            layouts[version] = self._lay(self.name, self.fields, version)
        return layouts[version]

    def _lay(self, name: str, fields: tuple[Field, ...], version: int) -> Layout:
        flexible = version in self.flexible
        present = [self._slot(field, version, flexible) for field in fields if version in field.versions]
        tagged = [(slot.tag, slot) for slot in present if slot.tag is not None]
        return Layout(
            name=name,
            version=version,
            flexible=flexible,
            fields=tuple(slot for slot in present if slot.tag is None),
            tagged=tuple(slot for _, slot in sorted(tagged, key=lambda pair: pair[0])),
            absent=tuple(field for field in fields if version not in field.versions),
        )

    def _slot(self, field: Field, version: int, flexible: bool) -> Slot:
        return Slot(
            field=field,
            nullable=version in field.nullable,
            compact=flexible if field.flexible is None else version in field.flexible,
            tag=field.tag if version in field.tagged else None,
            struct=self._lay(field.type, self.structs[field.type], version) if field.is_struct else None,
        )


class Api(msgspec.Struct, frozen=True):
    """One API: request and response. Both have the same versions."""

    api_key: int
    name: str
    """Kafka's name of the API, such as Metadata."""
    request: MessageSchema
    response: MessageSchema


def api(api_key: int) -> Api | None:
    """Return the API with this key; None if the schemas lack it (cached)."""
    return _api(int(api_key))  # a cache has other entries for members of an IntEnum


@cache
def _api(api_key: int) -> Api | None:
    file = _files().get(api_key)
    if file is None:
        return None
    stored = msgspec.json.decode(_read(file), type=_StoredApi)
    return Api(
        api_key=stored.api_key,
        name=stored.name,
        request=_message(stored.request, stored.name + "Request", "request", stored.api_key),
        response=_message(stored.response, stored.name + "Response", "response", stored.api_key),
    )


@cache
def header(kind: Literal["request", "response"]) -> MessageSchema:
    """Return the schema of the request header or the response header (cached)."""
    stored = msgspec.json.decode(_read("headers.json"), type=_StoredHeaders)
    if kind == "request":
        return _message(stored.request, "RequestHeader", "header", -1)
    return _message(stored.response, "ResponseHeader", "header", -1)


def api_keys() -> tuple[int, ...]:
    """Return all API keys of the schemas, ascending."""
    return tuple(sorted(_files()))


@cache
def message(name: str) -> MessageSchema | None:
    """Return the schema of a message or header by its name ("MetadataResponse", "RequestHeader"), None if the
    name is unknown (cached). Reads only the schema file that contains this message.
    """
    for kind, suffix in (("request", "Request"), ("response", "Response")):
        if name == suffix + "Header":
            return header("request" if kind == "request" else "response")
        stem = name.removesuffix(suffix).lower()
        for api_key, file in _files().items():
            if name.endswith(suffix) and _stem(file) == stem and (found := api(api_key)) is not None:
                schema = found.request if kind == "request" else found.response
                return schema if schema.name == name else None
    return None


def message_names() -> list[str]:
    """Return the names of all requests and responses."""
    known = [found for key in api_keys() if (found := api(key)) is not None]
    return [schema.name for found in known for schema in (found.request, found.response)]


def _stem(file: str) -> str:
    """Return an API's name as it appears in a file's name, in lower case: "createtopics" for
    "003_create_topics.json".
    """
    return file[4:].removesuffix(".json").replace("_", "")


@cache
def _files() -> dict[int, str]:
    """Return a dict of API key → name of the API's schema file."""
    names = (entry.name for entry in resources.files("weir.protocol").joinpath("schemas").iterdir())
    return {int(name[:3]): name for name in sorted(names) if name[:3].isdigit()}


def _read(file: str) -> bytes:
    return resources.files("weir.protocol").joinpath("schemas", file).read_bytes()


class _StoredField(msgspec.Struct, forbid_unknown_fields=True):
    """Stored form of a field. If `versions` is omitted, the field is in all versions of its message."""

    name: str
    type: str
    versions: str | None = None
    nullable: str = "none"
    tagged: str = "none"
    tag: int | None = None
    default: Default | msgspec.UnsetType = msgspec.UNSET
    ignorable: bool = False
    map_key: bool = False
    entity_type: str | None = None
    flexible: str | None = None


class _StoredMessage(msgspec.Struct, forbid_unknown_fields=True):
    versions: str
    flexible: str
    fields: list[_StoredField]
    structs: dict[str, list[_StoredField]] = {}


class _StoredApi(msgspec.Struct, forbid_unknown_fields=True):
    api_key: int
    name: str
    request: _StoredMessage
    response: _StoredMessage


class _StoredHeaders(msgspec.Struct, forbid_unknown_fields=True):
    request: _StoredMessage
    response: _StoredMessage


def parse_message(data: bytes, name: str, kind: Kind, api_key: int) -> MessageSchema:
    """Parse the JSON of one message in a schema file; return its schema. Raises msgspec.ValidationError for
    JSON of another form.
    """
    return _message(msgspec.json.decode(data, type=_StoredMessage), name, kind, api_key)


def _message(stored: _StoredMessage, name: str, kind: Kind, api_key: int) -> MessageSchema:
    def fields(found: list[_StoredField]) -> tuple[Field, ...]:
        return tuple(_field(field, stored.versions) for field in found)

    return MessageSchema(
        name=name,
        kind=kind,
        api_key=api_key,
        versions=VersionRange.parse(stored.versions),
        flexible=VersionSet.parse(stored.flexible),
        fields=fields(stored.fields),
        structs={struct: fields(found) for struct, found in stored.structs.items()},
    )


def _field(stored: _StoredField, versions: str) -> Field:
    return Field(
        name=stored.name,
        type=stored.type.removeprefix("[]"),
        is_array=stored.type.startswith("[]"),
        versions=VersionSet.parse(stored.versions or versions),
        nullable=VersionSet.parse(stored.nullable),
        tagged=VersionSet.parse(stored.tagged),
        tag=stored.tag,
        default=stored.default,
        ignorable=stored.ignorable,
        map_key=stored.map_key,
        entity_type=stored.entity_type,
        flexible=None if stored.flexible is None else VersionSet.parse(stored.flexible),
    )
