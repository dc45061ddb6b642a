"""JSON schemas of the configuration and of the quota file, for editors that check and complete TOML."""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

import msgspec

from weir.proxy.config.settings import Settings
from weir.quotas.replication.throttles import KEYS_OF, NODE_ID_MAX, RATE_MAX, ResourceType
from weir.quotas.table.group_entry import GROUP, GROUP_KEYS
from weir.quotas.table.options import Pacing, Scope
from weir.quotas.table.quota_entry import (
    DEFAULT_MARKER,
    ENTRY,
    KNOWN_KEYS,
    MODE_KEY,
    MODES,
    NAME_KEYS,
    PACING_KEY,
    SCOPE_KEY,
    UNTIL_KEY,
)
from weir.quotas.table.quota_kind import IN_BYTES, KINDS, UNLIMITED, QuotaKey
from weir.quotas.table.replication_entry import BROKER_KEY, REPLICATION, TOPIC_KEY
from weir.quotas.table.times import EXAMPLE
from weir.quotas.units import EXAMPLES, unit_of

JsonSchema: TypeAlias = dict[str, object]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
QUANTITY: Final = r"^\s*(\d+\.?\d*|\.\d+)\s*[A-Za-z]*\s*$"
"""Pattern of a quantity with a unit, such as `256KiB`."""


class Schema(Enum):
    """The file that a schema describes."""

    CONFIG = "config"
    QUOTAS = "quotas"


def schema_of(file: Schema) -> JsonSchema:
    """Return the schema of a file."""
    found = _config() if file is Schema.CONFIG else _quotas()
    return {"$schema": DIALECT, "title": f"Weir's {file.value} file"} | found


def _config() -> JsonSchema:
    (made,), components = msgspec.json.schema_components([Settings], ref_template="#/$defs/{name}")
    properties: dict[str, JsonSchema] = components["Settings"]["properties"]
    assert made == {"$ref": "#/$defs/Settings"}
    return _object({key: _setting(key, its) for key, its in properties.items()})


def _setting(key: str, schema: JsonSchema) -> JsonSchema:
    """Return the schema of a setting, which may also be a quantity with a unit, or `auto`."""
    unit, text = unit_of(key), dict[str, object]()
    if unit is not None and schema.get("type") in ("integer", "number"):
        text = {"type": "string", "pattern": QUANTITY, "description": EXAMPLES[unit]}
    elif key == "workers":
        text = {"type": "string", "pattern": r"^(auto|\d+)$"}
    if not text:
        return schema
    about = {name: schema[name] for name in ("description", "default") if name in schema}
    number = {name: value for name, value in schema.items() if name not in about}
    return {"anyOf": [number, text]} | about


def _quotas() -> JsonSchema:
    resources = {
        BROKER_KEY: {
            "anyOf": [{"type": "integer", "minimum": 0, "maximum": NODE_ID_MAX}, {"type": "string"}]
        },
        TOPIC_KEY: {"type": "string", "minLength": 1},
    }
    # Dotted keys are nested tables, which `weir check` judges.
    nested = {name.partition(".")[0]: dict[str, object]() for names in KEYS_OF.values() for name in names}
    rates = {name: _either(0, RATE_MAX) for name in KEYS_OF[ResourceType.BROKER]}
    replicas = {name: {"type": "string"} for name in KEYS_OF[ResourceType.TOPIC]}
    return _object(
        {
            ENTRY: _list({key: _ENTRY.get(key, {}) for key in KNOWN_KEYS}),
            GROUP: _list({key: _names() if key.endswith("s") else _NAME for key in GROUP_KEYS}),
            REPLICATION: _list(resources | nested | rates | replicas),
        }
    )


def _names() -> JsonSchema:
    return {"type": "array", "items": _NAME, "description": "Names, or prefixes with one star at the end."}


def _object(properties: object) -> JsonSchema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _list(properties: object) -> JsonSchema:
    return {"type": "array", "items": _object(properties)}


def _rate(key: QuotaKey) -> JsonSchema:
    kind = KINDS[key]
    bounds: JsonSchema = {"minimum": kind.least, "maximum": kind.most}
    if key in IN_BYTES:
        return _either(kind.least, kind.most) | {"description": kind.value}
    number: JsonSchema = {"type": "number" if kind.type == "DOUBLE" else "integer"}
    return {"anyOf": [number | bounds, {"const": UNLIMITED}], "description": kind.value}


def _either(least: float, most: int) -> JsonSchema:
    """Return the schema of a rate in bytes: a whole number, or text with a unit."""
    number = {"type": "integer", "minimum": least, "maximum": most}
    return {"anyOf": [number, {"type": "string", "pattern": QUANTITY}, {"const": UNLIMITED}]}


_NAME: Final[JsonSchema] = {"type": "string", "minLength": 1}
_ENTRY: Final[dict[str, JsonSchema]] = {
    **{
        key: {"type": "string", "minLength": 1, "description": f'A name; "{DEFAULT_MARKER}" for the default.'}
        for key in NAME_KEYS
    },
    MODE_KEY: {"enum": [*MODES]},
    PACING_KEY: {"enum": [pacing.value for pacing in Pacing]},
    SCOPE_KEY: {"enum": [scope.value for scope in Scope]},
    UNTIL_KEY: {"type": "string", "format": "date-time", "description": f"A time such as {EXAMPLE}."},
    **{key.value: _rate(key) for key in KINDS},
}
"""Key of a quota entry → its schema."""
