"""Serve the files of the page, with a strict policy for browsers, and entity tags for their caches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weir.quotas.table.quota_kind import KINDS

MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""Media types by the ending of a file's name; other files are not served."""
INDEX: Final = "index.html"
DIRECTIVES: Final = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
POLICY: Final = "; ".join(f"{name} {value}" for name, value in DIRECTIVES.items())
"""Content-Security-Policy of all files: only Weir's own files and API, no inline script, no HTML of texts."""
HEADERS: Final = {
    "content-security-policy": POLICY,
    "cache-control": "no-cache",  # kept, and asked for again with the tag: an upgrade is seen at once
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def contents() -> dict[str, bytes]:
    """Return the contents of the files by path: `/` for the page, `/page/NAME` for the other files. The file
    `quota_kinds.js` is made from the declarations of the kinds.
    """
    static = files(__package__).joinpath("static")
    names = [file.name for file in static.iterdir() if file.name.rpartition(".")[2] in MEDIA_TYPES]
    units = json.dumps({key.value: kind.unit for key, kind in KINDS.items()})
    made = {path_of("quota_kinds.js"): f"export const UNITS = {units};\n".encode()}
    return made | {path_of(name): static.joinpath(name).read_bytes() for name in sorted(names)}


def path_of(name: str) -> str:
    return "/" if name == INDEX else f"/page/{name}"


CONTENTS: Final = contents()
PATHS: Final = frozenset(CONTENTS)
"""Paths that need no token: the files are the same everywhere, and have no secrets."""


def routes() -> list[Route]:
    """Return one route per file."""
    return [Route(path, _page(path, content), methods=["GET"]) for path, content in CONTENTS.items()]


def _page(path: str, content: bytes) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    ending = (INDEX if path == "/" else path).rpartition(".")[2]
    headers = {**HEADERS, "etag": tag}

    async def page(request: Request) -> Response:
        if tag in _tags(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(content, headers={**headers, "content-type": MEDIA_TYPES[ending]})

    return page


def _tags(text: str) -> set[str]:
    """Return the entity tags of an If-None-Match header; a weak tag counts as its strong one (RFC 9110)."""
    return {tag.strip().removeprefix("W/") for tag in text.split(",")}
