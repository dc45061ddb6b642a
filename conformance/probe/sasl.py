"""Cases for a listener with SASL, and for SASL requests on one without: messages that come out of order, or
with wrong contents.

Before authentication, a client may send ApiVersions and SaslHandshake. After SaslHandshake v0 it sends bare
tokens, after v1 SaslAuthenticate requests (KIP-43, KIP-152). Nothing else is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.conformance.probe.case import Case, CaseOutcome
from weir.conformance.probe.link import frame
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.framing import LENGTH
from weir.protocol.messages import (
    ApiVersionsRequest,
    ListGroupsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weir.protocol.values import Message
    from weir.protocol.versions import VersionRange

ORDER: Final = "KIP-152"
RECEIVE_MAX_BYTES: Final = 524_288
"""Maximum size (bytes) of a request before authentication: the default of Kafka's
`sasl.server.max.receive.size`.
"""
_UNKNOWN_MECHANISM: Final = "WEIR-PROBE"
_GARBAGE: Final = b"\xfe\xfdweir-probe\xff"
_ILLEGAL: Final = frozenset({int(ErrorCode.ILLEGAL_SASL_STATE)})
_FAILED: Final = _ILLEGAL | {int(ErrorCode.SASL_AUTHENTICATION_FAILED)}
_UNSUPPORTED: Final = frozenset({int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)})
_REFUSED: Final = frozenset({CaseOutcome.ERROR, CaseOutcome.CLOSED})
_ANSWERED: Final = frozenset({CaseOutcome.ANSWER})


def unasked_cases(offered: Mapping[int, VersionRange]) -> Iterator[Case]:
    """Yield SASL requests for a listener without SASL, in each version that it offers. It answers
    ILLEGAL_SASL_STATE.
    """
    for version in offered.get(ApiKey.SASL_HANDSHAKE, ()):
        yield _case("unasked", _Dialog().handshake("PLAIN", version), _REFUSED, _ILLEGAL | _UNSUPPORTED)
    for version in offered.get(ApiKey.SASL_AUTHENTICATE, ()):
        yield _case("unasked", _Dialog().token(_GARBAGE, version), _REFUSED, _ILLEGAL)


def cases(
    offered: Mapping[int, VersionRange], mechanism: str = "PLAIN", token: bytes | None = None
) -> Iterator[Case]:
    """Yield cases for a listener with SASL. `offered`: API key → versions that it and the schemas have.
    `mechanism`: one that it has. `token`: a PLAIN token that it accepts; without it, cases that need one are
    left out.
    """
    yield from _before_handshake(offered)
    for version in offered.get(ApiKey.SASL_HANDSHAKE, ()):
        unknown = _Dialog().handshake(_UNKNOWN_MECHANISM, version)
        yield _case("unknown-mechanism", unknown, frozenset({CaseOutcome.ERROR}), _UNSUPPORTED, "KIP-43")
        twice = _Dialog().handshake(mechanism, version).handshake(mechanism, version)
        yield _case("twice", twice, _REFUSED, _ILLEGAL)
        other = _Dialog().handshake(mechanism, version).list_groups(offered)
        yield _case(f"after-handshake-v{version}", other, _REFUSED, _ILLEGAL)
    yield from _bare_tokens(offered, mechanism, token)
    for version in offered.get(ApiKey.SASL_AUTHENTICATE, ()):
        yield from _tokens(offered, mechanism, token, version)


def _before_handshake(offered: Mapping[int, VersionRange]) -> Iterator[Case]:
    """Yield requests other than SaslHandshake at the start of a connection."""
    yield _case("unauthenticated", _Dialog().list_groups(offered), _REFUSED, _ILLEGAL)
    for version in offered.get(ApiKey.SASL_AUTHENTICATE, ()):
        yield _case("before-handshake", _Dialog().token(_GARBAGE, version), _REFUSED, _ILLEGAL)
    twice = _Dialog().api_versions().api_versions()
    yield _case("twice-unauthenticated", twice, _ANSWERED | _REFUSED, _ILLEGAL, "KIP-35")
    handshake = _Dialog().api_versions().handshake(_UNKNOWN_MECHANISM, 0)
    yield _case("after-api-versions", handshake, frozenset({CaseOutcome.ERROR}), _UNSUPPORTED, "KIP-35")
    for name, size, dangerous in (("large", RECEIVE_MAX_BYTES + 1, False), ("huge", 0x7FFFFFFF, True)):
        yield _case(
            f"unauthenticated-{name}",
            _Dialog().frame_of(size),
            frozenset({CaseOutcome.CLOSED}),
            None,
            "sasl.server.max.receive.size",
            dangerous=dangerous,
        )


def _bare_tokens(offered: Mapping[int, VersionRange], mechanism: str, token: bytes | None) -> Iterator[Case]:
    """Yield tokens after SaslHandshake v0."""
    closed = frozenset({CaseOutcome.CLOSED})
    garbage = _Dialog().handshake(mechanism, 0).bare(_GARBAGE)
    yield _case("bare-token-garbage", garbage, closed, None, "KIP-43")
    framed = _Dialog().handshake(mechanism, 0).token(_GARBAGE, 0)
    yield _case("after-handshake-v0", framed, closed, None, ORDER, raw_tokens=1)
    if 1 in offered.get(ApiKey.SASL_HANDSHAKE, ()):
        v1 = _Dialog().handshake(mechanism, 1).bare(b"\0weir-probe\0weir-probe")
        yield _case("bare-token-after-v1", v1, _REFUSED, _ILLEGAL, ORDER)
    if token is not None:
        good = _Dialog().handshake(mechanism, 0).bare(token).api_versions()
        yield _case("after-bare-token", good, _ANSWERED, None, "KIP-43", raw_tokens=1)


def _tokens(
    offered: Mapping[int, VersionRange], mechanism: str, token: bytes | None, version: int
) -> Iterator[Case]:
    """Yield SaslAuthenticate requests of a version after SaslHandshake v1."""
    begun = _Dialog().handshake(mechanism, 1)
    for name, content in (("garbage", _GARBAGE), ("empty", b""), ("wrong-password", b"\0weir-probe\0x")):
        yield _case(name, begun.token(content, version), _REFUSED, _FAILED)
    yield _case(f"instead-of-v{version}", begun.api_versions(), _REFUSED, _ILLEGAL)
    if token is not None:
        authenticated = begun.token(token, version)
        yield _case("valid", authenticated, _ANSWERED, None)
        if ApiKey.LIST_GROUPS in offered:
            asking = authenticated.list_groups(offered)
            yield _case(f"authenticated-v{version}", asking, _ANSWERED, None)
        again = authenticated.token(token, version)
        yield _case("again", again, _ANSWERED | _REFUSED, _FAILED, "KIP-368")
        other = authenticated.handshake(_UNKNOWN_MECHANISM, 1)
        yield _case(f"other-mechanism-v{version}", other, _REFUSED, _ILLEGAL | _UNSUPPORTED, "KIP-368")


class _Dialog:
    """Frames of one client. Each method returns a dialog with one more frame, which is its subject."""

    def __init__(self, data: bytes = b"", count: int = 0, api_key: int = -1, version: int = 0) -> None:
        self.data, self.count, self.api_key, self.version = data, count, api_key, version

    def handshake(self, mechanism: str, version: int) -> _Dialog:
        request = SaslHandshakeRequest(mechanism=mechanism)
        return self._request(request, ApiKey.SASL_HANDSHAKE, version)

    def token(self, token: bytes, version: int) -> _Dialog:
        return self._request(SaslAuthenticateRequest(auth_bytes=token), ApiKey.SASL_AUTHENTICATE, version)

    def bare(self, token: bytes) -> _Dialog:
        """Add a token without a header."""
        data = self.data + LENGTH.pack(len(token)) + token
        return _Dialog(data, self.count + 1, self.api_key, self.version)

    def api_versions(self) -> _Dialog:
        return self._request(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)

    def list_groups(self, offered: Mapping[int, VersionRange]) -> _Dialog:
        """Add ListGroups, in version 0 if it is not offered."""
        version = offered[ApiKey.LIST_GROUPS].max if ApiKey.LIST_GROUPS in offered else 0
        return self._request(ListGroupsRequest(), ApiKey.LIST_GROUPS, version)

    def frame_of(self, size: int) -> _Dialog:
        """Add the beginning of a frame of this length (bytes)."""
        return _Dialog(self.data + LENGTH.pack(size) + bytes(8), self.count + 1, ApiKey.API_VERSIONS, 0)

    def _request(self, message: Message, api_key: ApiKey, version: int) -> _Dialog:
        data = self.data + frame(message, api_key, version, self.count + 1)
        return _Dialog(data, self.count + 1, api_key, version)


def _case(
    name: str,
    dialog: _Dialog,
    permitted: frozenset[CaseOutcome],
    errors: frozenset[int] | None,
    reference: str = ORDER,
    *,
    raw_tokens: int = 0,
    dangerous: bool = False,
) -> Case:
    """Return the case of a dialog. Its name begins with the API of the last request that has a header."""
    names = {
        ApiKey.SASL_HANDSHAKE: "SaslHandshake",
        ApiKey.SASL_AUTHENTICATE: "SaslAuthenticate",
        ApiKey.API_VERSIONS: "ApiVersions",
        ApiKey.LIST_GROUPS: "ListGroups",
    }
    return Case(
        name=f"{names[ApiKey(dialog.api_key)]}/v{dialog.version}/sasl-{name}",
        api_key=dialog.api_key,
        version=dialog.version,
        data=dialog.data,
        permitted=permitted,
        errors=errors,
        reference=reference,
        raw_tokens=raw_tokens,
        unauthenticated=True,
        dangerous=dangerous,
    )
