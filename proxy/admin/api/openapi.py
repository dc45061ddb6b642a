"""The description of the API (OpenAPI 3.1), generated from the types of its operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from weir.proxy.admin.api import events
from weir.proxy.admin.api.operation import Operation
from weir.proxy.admin.problems import MEDIA_TYPE
from weir.proxy.build import VERSION
from weir.proxy.control.events.records import AnyEvent
from weir.proxy.control.snapshots.records import ErrorDetails

PATH: Final = "/openapi.json"
TEXTS: Final[Mapping[str, tuple[str, Mapping[int, str]]]] = {
    "/healthz": ("The process runs", {200: "It runs"}),
    "/readyz": ("Clients can be served", {200: "They can", 503: "They cannot, with the reason"}),
    "/metrics": ("Metrics for Prometheus", {200: "Prometheus' text format, or OpenMetrics"}),
}
"""Pages of plain text: path → (summary, meaning of each status)."""
ERRORS: Final = {
    400: "A parameter or the body is not allowed",
    401: "The token is wrong, or (except on loopback) missing",
    403: "On loopback: the Host header names another machine, or a request for a change has no token",
    503: "Too many requests are being answered; the header Retry-After says when to ask again",
}
BODY_ERRORS: Final = {
    409: "The store has not made the change",
    413: "The body is too long",
    415: "The body is no JSON",
    422: "No such quota can exist",
}
READER_ERRORS: Final = {
    400: "The id of the last event is no number",
    401: ERRORS[401],
    403: "On loopback: the Host header names another machine",
    503: "Too many readers are connected",
}
_REF: Final = "#/components/schemas/{name}"


def describe(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the description of these operations and of the pages of plain text."""
    all_operations = list(operations)
    types: list[type] = [
        *(operation.result for operation in all_operations),
        *(operation.query for operation in all_operations),
        *(operation.body for operation in all_operations if operation.body is not None),
        ErrorDetails,
    ]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type: dict[type, Any] = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {path: {"get": _text(*page)} for path, page in TEXTS.items()}
    for operation in all_operations:
        described = _described(operation, by_type, components)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    paths[PATH] = {"get": _own()}
    paths[events.PATH] = {"get": _events(by_type[ErrorDetails])}
    components |= _event_schemas()
    for query in {operation.query.__name__ for operation in all_operations}:
        components.pop(query, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Weir's admin endpoint",
            "version": VERSION,
            "description": "Times are milliseconds of Unix time. Errors are problem details (RFC 9457).",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(
    operation: Operation, by_type: Mapping[type, Any], components: Mapping[str, Any]
) -> dict[str, Any]:
    errors = {**ERRORS, **(BODY_ERRORS if operation.body is not None else {})}
    described: dict[str, Any] = {
        "operationId": f"{operation.method.lower()}{operation.path.replace('/', '_')}",
        "summary": operation.summary,
        "parameters": list(_parameters(components[by_type[operation.query]["$ref"].rpartition("/")[2]])),
        "responses": {
            "200": {"description": "The result", "content": _content(by_type[operation.result])},
            **_refusals(errors, by_type[ErrorDetails]),
        },
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _content(by_type[operation.body])}
    if operation.changes:
        described["security"] = [{"token": []}]
    return described


def _parameters(query: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for name, schema in query["properties"].items():
        yield {"name": name, "in": "query", "required": False, "schema": schema}


def _content(schema: object, media_type: str = "application/json") -> dict[str, Any]:
    return {media_type: {"schema": schema}}


def _text(summary: str, meanings: Mapping[int, str]) -> dict[str, Any]:
    """Return the description of a page of plain text."""
    answers = {
        str(status): {"description": text, "content": {"text/plain": {"schema": {"type": "string"}}}}
        for status, text in meanings.items()
    }
    return {"summary": summary, "responses": answers}


def _refusals(errors: Mapping[int, str], details: object) -> dict[str, Any]:
    """Return the descriptions of responses that are problem details."""
    content = _content(details, MEDIA_TYPE)
    return {str(status): {"description": text, "content": content} for status, text in errors.items()}


def _events(details: object) -> dict[str, Any]:
    """Return the description of the stream of events."""
    number: dict[str, Any] = {"type": "integer", "minimum": 0}
    return {
        "operationId": "get_api_events",
        "summary": "New events, as server-sent events; the data of each is a JSON object, `Event`",
        "parameters": [
            {"name": "after", "in": "query", "required": False, "schema": number},
            {"name": "Last-Event-ID", "in": "header", "required": False, "schema": number},
        ],
        "responses": {
            "200": {
                "description": "A stream without an end; a reader that is too slow gets the event `closed`",
                "content": _content({"type": "string"}, events.MEDIA_TYPE),
            },
            **_refusals(READER_ERRORS, details),
        },
    }


def _event_schemas() -> dict[str, Any]:
    """Return the schemas of all kinds of events, and of `Event`, which is any of them."""
    (any_event,), components = msgspec.json.schema_components([AnyEvent], ref_template=_REF)
    return {"Event": any_event, **components}


def _own() -> dict[str, Any]:
    answer = {"description": "OpenAPI 3.1", "content": _content({"type": "object"})}
    return {"summary": "This description", "responses": {"200": answer}}
