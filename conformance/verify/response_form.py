"""Finds the form of a response: those of ApiVersions depend on more than the request's version (KIP-511)."""

from __future__ import annotations

from typing import Final

from weir.conformance.verify.finding import Defect
from weir.conformance.verify.messages import Form, form, read
from weir.conformance.verify.rules import R
from weir.protocol.api import ApiKey, versions

_UNSUPPORTED: Final = (35).to_bytes(2)
_BODY: Final = 8
"""Offset (bytes) of the body of a response without tagged fields in its header."""


def response_form(data: bytes, api_key: int, version: int) -> tuple[Form | None, list[Defect]]:
    """Return (form of the response `data`, which begins with its length prefix, to a request of this version;
    defects of the server's choice of form). None if the schemas lack the version, or if the form is wrong.
    """
    known = versions(api_key)
    if known is None or version not in known:
        is_refused = api_key == ApiKey.API_VERSIONS and data[_BODY : _BODY + 2] == _UNSUPPORTED
        return (form("response", api_key, 0) if is_refused else None), []
    asked = form("response", api_key, version)
    if api_key != ApiKey.API_VERSIONS:
        return asked, []
    if data[_BODY : _BODY + 2] == _UNSUPPORTED:
        oldest = form("response", api_key, 0)
        return (asked, [_fallback(version)]) if read(data, oldest).defects else (oldest, [])
    return (None, [_header()]) if version and _has_tags_in_header(data, asked) else (asked, [])


def _fallback(version: int) -> Defect:
    text = "The server answers error 35 in another form than version 0, which the client may not read."
    return Defect(
        R.API_VERSIONS_FALLBACK,
        text,
        "",
        _BODY,
        "version 0",
        f"version {version}" if version else "another form",
    )


def _header() -> Defect:
    text = (
        "The server writes tagged fields in the header of an ApiVersions response. "
        "Leave them out, also in flexible versions."
    )
    return Defect(R.API_VERSIONS_HEADER, text, "header", _BODY, "the body", "tagged fields")


def _has_tags_in_header(data: bytes, asked: Form) -> bool:
    """Return True if the response can be read only without the byte behind its correlation id."""
    has_byte = data[_BODY : _BODY + 1] == b"\0"
    return (
        has_byte
        and bool(read(data, asked).defects)
        and not read(data[:_BODY] + data[_BODY + 1 :], asked).defects
    )
