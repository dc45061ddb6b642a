"""Errors of the admin endpoint (RFC 9457): each is a JSON object with a title, a status and a detail."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from weir.proxy.control.snapshots.records import ErrorDetails

MEDIA_TYPE: Final = "application/problem+json"
RETRY_S: Final = 1
"""Time (s) after which a client that was refused because of others may ask again."""
_DETAILS: Final = {
    404: "there is no such page; /openapi.json lists the pages",
    405: "the page has other methods, see the header Allow",
}


class ProblemError(Exception):
    """Error: a request to the admin endpoint cannot be answered. It has the status and the text to answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for an error. With status 503 it says when to ask again."""
    headers = {**(headers or {}), **({"retry-after": str(RETRY_S)} if status == 503 else {})}
    text = detail.encode("utf-8", "replace").decode("utf-8")
    body = msgspec.json.encode(ErrorDetails(title=HTTPStatus(status).phrase, status=status, detail=text))
    return Response(body, status, headers, MEDIA_TYPE)


async def _of_problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return problem(error.status, error.detail)


async def _of_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, _DETAILS.get(error.status_code, error.detail), error.headers)


async def _of_end(_request: Request, _error: Exception) -> Response:
    return problem(
        400, "the body has not arrived: the connection has ended, or the body is malformed or slow"
    )


async def _of_bug(_request: Request, _error: Exception) -> Response:
    return problem(500, "internal error; Weir's log has more")


HANDLERS: Final = {
    ProblemError: _of_problem,
    HTTPException: _of_http,
    ClientDisconnect: _of_end,
    Exception: _of_bug,
}
"""Handlers of exceptions, for starlette."""
