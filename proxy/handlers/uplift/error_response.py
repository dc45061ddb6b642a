"""Error responses: one error code for everything that a request asks for.

Kafka's requests have a method for that each (`AbstractRequest.getErrorResponse`). Here the schemas tell the
places: the response's own error code, or else one result for each element of the request's first array.
"""
# mypyc: skip, because these requests are rare, so compiling would only make the build longer.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    FindCoordinatorResponse,
    Message,
)
from weir.protocol.pieces import Pieces, each
from weir.protocol.values import Value, response_type, schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weir.protocol.schema import Layout, Slot

_CODES: Final = frozenset({"error_code", "partition_error_code"})
_TEXT: Final = "error_message"
_KEYS: Final = {
    **{name: name for name in ("name", "partition_index", "resource_type", "resource_name")},
    **{name: name for name in ("entity_type", "entity_name")},
    "topic_name": "name",  # AlterReplicaLogDirs
}
"""Fields of results that name the thing that was asked for → their fields in the request."""


def may_tell_error(request: Message, version: int) -> bool:
    """Return True if the response to the request has a place for an error code in this version."""
    return _has_code(_answer_layout(request, version)) or bool(_asked(request))


def error_response(request: Message, version: int, code: ErrorCode, text: str) -> Pieces[Message]:
    """Return the response to the request in this version, with the error in each place for one."""
    answer, layout = response_type(schema_of(type(request)).api_key)(), _answer_layout(request, version)
    _fill(answer, layout, code, text)
    if isinstance(answer, FindCoordinatorResponse):
        answer.node_id = answer.port = -1  # no node
    if not _has_code(layout):
        (slot, *_others) = [slot for slot in layout.fields if _has_codes(slot)]
        asked = _asked(request)
        setattr(
            answer,
            slot.name,
            (yield from each(lambda one: _result(type(answer), slot, one, code, text), asked)),
        )
    return answer


def _answer_layout(request: Message, version: int) -> Layout:
    return schema_of(response_type(schema_of(type(request)).api_key)).layout(version)


def _asked(request: Message) -> Sequence[object]:
    """Return the elements of the request that have a result each in the response."""
    if isinstance(request, AlterReplicaLogDirsRequest):
        return [topic for one in request.dirs for topic in one.topics]
    if isinstance(request, DescribeLogDirsRequest):
        return [None]  # the results are the broker's directories
    return _first_array(request)


def _first_array(value: object) -> Sequence[object]:
    """Return the first array of a message or struct; of a DeleteTopics request the one that has elements."""
    arrays = [found for name in _names(value) if isinstance(found := getattr(value, name), list)]
    return next((found for found in arrays if found), [])


def _names(value: object) -> Sequence[str]:
    return type(value).__struct_fields__ if isinstance(value, Value) else ()


def _has_code(layout: Layout) -> bool:
    return any(slot.name in _CODES for slot in layout.fields)


def _has_codes(slot: Slot) -> bool:
    """Return True if the field is an array whose elements have error codes at any depth."""
    return (
        slot.is_array
        and slot.struct is not None
        and (_has_code(slot.struct) or any(map(_has_codes, slot.struct.fields)))
    )


def _fill(value: Any, layout: Layout, code: ErrorCode, text: str) -> None:
    for slot in layout.fields:
        if slot.name in _CODES:
            setattr(value, slot.name, code)
        elif slot.name == _TEXT:
            setattr(value, slot.name, text)


def _result(message: type[Message], slot: Slot, asked: object, code: ErrorCode, text: str) -> object:
    """Return the result for one element of a request: its names and numbers, and the error."""
    layout = slot.struct
    if layout is None:
        raise AssertionError("results are structs")
    value = getattr(message, slot.type)()
    _fill(value, layout, code, text)
    names = [one for one in layout.fields if one.name not in _CODES and one.name != _TEXT]
    for field in names:
        if field.struct is not None and (_has_codes(field) or not field.nullable):
            within = _first_array(asked) if _has_codes(field) else getattr(asked, field.name, [])
            setattr(value, field.name, [_result(message, field, one, code, text) for one in within])
        elif isinstance(asked, Value) and field.name in _KEYS:
            setattr(value, field.name, getattr(asked, _KEYS[field.name]))
    if isinstance(asked, str | int):
        setattr(value, names[0].name, asked)
    return value
