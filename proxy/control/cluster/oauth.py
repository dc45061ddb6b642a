"""Access tokens for SASL/OAUTHBEARER: OAuth 2.0's client credentials grant (RFC 6749, section 4.4; KIP-768).

A grant is one POST of a form. Rejected: Authlib, requests-oauthlib, each with an HTTP client besides, to make
the same form.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage
from typing import IO, Final
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec
import trio

from weir.proxy.config.principals import Credentials

REFRESH: Final = 0.8
"""Part of a token's life after which it is fetched again (`sasl.login.refresh.window.factor`)."""
ANSWER_BYTES_MAX: Final = 256 * 1024


class GrantError(Exception):
    """There is no token; the text has the reason, without any secret."""

    def __init__(self, text: str, *, is_refused: bool) -> None:
        super().__init__(text)
        self.is_refused = is_refused
        """True if the endpoint rejects the request: another attempt would fail too."""


class _Grant(msgspec.Struct):
    """Successful response (RFC 6749, section 5.1)."""

    access_token: str
    expires_in: float = 0.0


class _Refusal(msgspec.Struct):
    """Error response (RFC 6749, section 5.2)."""

    error: str = ""
    error_description: str = ""


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: it would take the secret to another address."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Return None, so that the redirect is an error."""


async def access_token(
    credentials: Credentials, timeout_s: float, fetch: Callable[[Credentials, float], bytes] | None = None
) -> str:
    """Return a token: the one that was fetched last, until `REFRESH` of its life has passed. Raises
    GrantError. `fetch` returns the endpoint's answer; None for `fetch_grant`.
    """
    cache, now_s = credentials.cache, trio.current_time()
    if not cache.token or now_s >= cache.refresh_at_s:
        answer = await trio.to_thread.run_sync(
            fetch or fetch_grant, credentials, timeout_s, abandon_on_cancel=True
        )
        try:
            grant = msgspec.json.decode(answer, type=_Grant, strict=False)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise GrantError("its answer is no grant (RFC 6749, section 5.1)", is_refused=False) from None
        if not grant.access_token.isascii() or not grant.access_token.isprintable():
            raise GrantError("its token is no text of ASCII", is_refused=False)
        cache.token, cache.refresh_at_s = grant.access_token, now_s + REFRESH * grant.expires_in
    return cache.token


def fetch_grant(credentials: Credentials, timeout_s: float) -> bytes:
    """Ask the token endpoint, and return its answer. Blocks. Raises GrantError."""
    name, secret = quote_plus(credentials.username), quote_plus(credentials.password)
    form = {"grant_type": "client_credentials"} | ({"scope": credentials.scope} if credentials.scope else {})
    headers = {
        "Authorization": f"Basic {base64.b64encode(f'{name}:{secret}'.encode()).decode()}",
        "Accept": "application/json",
    }
    request = Request(credentials.token_url, urlencode(form).encode(), headers)  # noqa: S310  # an HTTP URL
    try:
        with build_opener(_NoRedirects).open(request, timeout=timeout_s) as answer:
            found: bytes = answer.read(ANSWER_BYTES_MAX)
            return found
    except HTTPError as error:
        with error:
            raise GrantError(_refusal(error), is_refused=error.code in (400, 401, 403)) from None
    except (OSError, HTTPException) as error:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        raise GrantError(f"no answer: {reason.lower()}", is_refused=False) from None


def _refusal(error: HTTPError) -> str:
    try:
        said = msgspec.json.decode(error.read(ANSWER_BYTES_MAX), type=_Refusal)
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError, HTTPException):
        said = _Refusal()
    text = ": ".join(filter(None, (said.error, said.error_description)))
    return f"it answers with status {error.code}{f', {text}' if text else ''}"
