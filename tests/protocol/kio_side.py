"""kio's half of the comparison: values given as plain dicts become kio's classes, and kio's bytes.

Imports nothing of ours, so that it can also run in an interpreter that has another kio: as a script it
reads a pickled list of jobs (API key, "request" or "response", version, dict) from stdin, and writes the
pickled answers to stdout.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import io
import pickle
import sys
import types
import typing
import uuid
from typing import Any

Job = tuple[int, str, int, dict[str, Any]]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@functools.cache
def kio_class(api_key: int, kind: str, version: int) -> Any:
    """kio's class of a message in a version; None if it has none."""
    from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema, load_response_schema

    load = load_request_schema if kind == "request" else load_response_schema
    try:
        return load(api_key, version)
    except (UnknownAPIKey, UnknownEntity):
        return None


def encode(job: Job) -> bytes | str | None:
    """kio's bytes; None if it does not know the version; a str says why the value could not be built."""
    from kio.serial import entity_writer

    api_key, kind, version, fields = job
    cls = kio_class(api_key, kind, version)
    if cls is None:
        return None
    try:
        entity = _entity(cls, fields)
        out = io.BytesIO()
        entity_writer(cls)(out, entity)
    except Exception as error:  # noqa: BLE001  # the caller reports whatever another library raises
        return f"{type(error).__name__}: {error}"
    return out.getvalue()


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _entity(cls: Any, fields: dict[str, Any]) -> Any:
    return cls(
        **{
            field.name: _value(_hints(cls)[field.name], field, _named(fields, field.name))
            for field in dataclasses.fields(cls)
        }
    )


def _named(fields: dict[str, Any], name: str) -> Any:
    """The value of the field that kio calls `name`: it drops the unit of a duration, puts an underscore after
    names of Python's own, spells KRaft as two words, and has older names of fields that Kafka renamed."""
    plain = name.rstrip("_").replace("k_raft", "kraft").replace("candidate_", "replica_")
    for candidate in (f"{name}_legacy", name, f"{name}_ms", f"{name}_or_member_epoch", plain):
        if candidate in fields:
            return fields[candidate]
    raise KeyError(name)


def _value(hint: Any, field: Any, value: Any) -> Any:
    arguments = [part for part in typing.get_args(hint) if part not in (type(None), Ellipsis)]
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = arguments
        arguments = [part for part in typing.get_args(hint) if part is not Ellipsis]
    if value is None:
        return None
    if typing.get_origin(hint) is tuple:
        return tuple(_value(arguments[0], field, element) for element in value)
    if dataclasses.is_dataclass(hint):
        return _entity(hint, value)
    return _scalar(field.metadata["kafka_type"], value)


def _scalar(kafka_type: str, value: Any) -> Any:
    from kio.schema.errors import ErrorCode

    if kafka_type == "error_code":
        return ErrorCode(value)
    if kafka_type.startswith("timedelta"):
        return dt.timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return None if value == -1 else _EPOCH + dt.timedelta(milliseconds=value)
    if kafka_type == "uuid":
        return None if value == uuid.UUID(int=0) else value
    return value


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps([encode(job) for job in pickle.load(sys.stdin.buffer)]))  # noqa: S301
