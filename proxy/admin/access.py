"""Access to the admin endpoint: the token, and the Host header.

- `OPEN` pages need nothing; the files of the page are open, because browsers open it without a token.
- On loopback everybody may read. The Host header must then name this machine, so that no web page reads
  through a name that its owner has pointed to 127.0.0.1 (DNS rebinding).
- Elsewhere reading needs the token (`Authorization: Bearer`).
- Changes need the token everywhere (`may_change`).
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final

import structlog
import trio
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from weir.proxy.admin.page.routes import PATHS
from weir.proxy.admin.problems import problem
from weir.proxy.admin.refusals import Reason, Refusals
from weir.proxy.config.admin_access import AdminAccess, is_loopback, read_token
from weir.proxy.config.config import ConfigError
from weir.proxy.control.events.health import Condition
from weir.proxy.control.events.health import problem as condition
from weir.proxy.file_watch import FileWatch
from weir.proxy.outage import Outage

log = structlog.get_logger("weir.admin")

OPEN: Final = frozenset({"/healthz", "/readyz"}) | PATHS
_HAS_TOKEN: Final = "weir.token"  # noqa: S105  # a key of the scope
_CHALLENGE: Final = {"www-authenticate": 'Bearer realm="weir"'}


class Token:
    """The token in a file, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        """Read the token. Raises ConfigError."""
        self._path = path
        self._watch = FileWatch([path])
        self._watch.read = self._watch.stamps()
        self._digest = _digest(read_token(path))
        self.outage: Final = Outage(
            log, "changed admin token refused, the old one stays in force", "admin token can be used again"
        )

    def is_(self, text: str) -> bool:
        """Return True if the text is the token. The time of the comparison does not depend on the token."""
        return hmac.compare_digest(_digest(text), self._digest)

    async def look(self) -> None:
        """Read the token again if the file has changed. If the file cannot be used, keep the old token."""
        if not await self._watch.look():
            return
        self._watch.read = await trio.to_thread.run_sync(self._watch.stamps)
        try:
            self._digest = _digest(await trio.to_thread.run_sync(read_token, self._path))
        except ConfigError as error:
            self.outage.failed(error=str(error))
        else:
            self.outage.over()
            log.info("changed admin token in force")


def token_refused(_outage: Outage) -> Condition:
    """Return the condition of a changed token that cannot be used."""
    return condition(
        "admin_token_refused",
        "The changed admin_token_file is refused; the older token is in force.",
        "Write a token to the file. Without one, the next start of Weir fails.",
    )


class AccessControl:
    """ASGI application that passes allowed requests on to another application, and refuses the others."""

    def __init__(self, app: ASGIApp, rules: AdminAccess, token: Token | None, refusals: Refusals) -> None:
        self._app = app
        self._rules = rules
        self._token = token
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        reason = self._reason(scope)
        if reason is None:
            await self._app(scope, receive, send)
        else:
            await self._refusals.add(reason, scope["client"])
            await _refusal(reason)(scope, receive, send)

    def _reason(self, scope: Scope) -> Reason | None:
        """Return why a request is not allowed; None if it is."""
        path, headers = scope["path"], Headers(scope=scope)
        if path in OPEN:
            return None
        given = headers.get("authorization")
        if given is not None:
            scope[_HAS_TOKEN] = has_token = self._has_token(given)
            return None if has_token else "wrong_token"
        if not self._rules.loopback:
            return "no_token"
        if not self._names_us(headers.get("host", "")):
            return "host"
        return None

    def _has_token(self, authorization: str) -> bool:
        scheme, _, text = authorization.partition(" ")
        return scheme.lower() == "bearer" and self._token is not None and self._token.is_(text.strip())

    def _names_us(self, host: str) -> bool:
        """Return True if a Host header names this machine, or the host of the setting `admin`."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        name = name.removeprefix("[").removesuffix("]")
        return is_loopback(name) or name.lower() == self._rules.host.lower()


def _refusal(reason: Reason) -> Response:
    if reason == "host":
        return problem(403, "the Host header must be localhost, 127.0.0.1, [::1] or the setting admin")
    wrong = reason == "wrong_token"
    detail = "the token is wrong" if wrong else "reading needs the header Authorization: Bearer TOKEN"
    return problem(401, detail, _CHALLENGE)


def may_change(scope: Scope) -> bool:
    """Return True if a request has the token."""
    return bool(scope.get(_HAS_TOKEN))


def _digest(text: str) -> bytes:
    """Return a hash of a token: hashes have one length, so a comparison shows nothing about the token's."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
