"""The name in a client's SASL tokens, read as Kafka's own servers read it.

A token is one message of a mechanism, either without a Kafka header (SaslHandshake v0) or in a
SaslAuthenticate request. The name is only *claimed*; the broker decides whether it is true. Brokers may be
stricter than these functions, but for every token that Kafka accepts, they return the same name as Kafka
(PlainSaslServer, ScramSaslServer, OAuthBearerSaslServer).

Every function raises TokenError for a token without a name. The error's text never has a byte of the token.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from codecs import BOM_UTF8
from typing import Final, NamedTuple

import msgspec

from protocol.errors import TokenError

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"

SUBJECT: Final = "sub"
"""The claim of a JWT that is the principal's name, unless sasl.oauthbearer.sub.claim.name is set."""
NAME_BYTES_MAX: Final = 32_767
"""Longest string of Kafka's protocol: no quota can be set for a longer name."""
ODD_BYTES_MAX: Final = 16 * 1024
"""The longest claims that are read as leniently as Kafka reads them: that takes long."""
_JAVA_SPACES: Final = "".join(map(chr, range(33)))
"""The characters that Java's String.trim removes."""


class Claimed(NamedTuple):
    """The name in a SCRAM token."""

    name: str
    is_token_id: bool = False
    """True if the name is a delegation token's id; the principal is the token's owner (KIP-48)."""


def plain_name(token: bytes) -> str:
    """Return the user of a PLAIN token: `[authzid] NUL authcid NUL passwd` (RFC 4616). Raises TokenError."""
    parts = token.decode("utf-8", "replace").split("\0")
    if len(parts) != 3:  # not checked first: the last part is the password
        raise TokenError(f"a PLAIN token of {len(parts)} parts, expected 3")
    if parts[0] not in ("", parts[1]):
        raise TokenError("a PLAIN token with an authorization id that is not its user")
    return _checked(parts[1], "PLAIN token")


def scram_name(token: bytes) -> Claimed:
    """Return the user of a SCRAM client-first message (RFC 5802), or the delegation token id, if the
    extension `tokenauth=true` is present. Raises TokenError.
    """
    parts = token.decode("utf-8", "replace").split(",")
    fields = parts[2:] if parts[0] in ("n", "y") or parts[0].startswith("p=") else []
    if fields and fields[0].startswith("m="):
        fields = fields[1:]
    if len(fields) < 2 or not (fields[0].startswith("n=") and fields[1].startswith("r=")):
        raise TokenError("not a SCRAM client-first message")
    written = fields[0][2:]
    name = _unescaped(written)
    _check_authzid(parts[1], name)
    extensions = dict(field.split("=", 1) for field in fields[2:] if "=" in field)
    is_token_id = extensions.get("tokenauth", "").lower() == "true"
    return Claimed(_checked(name, "SCRAM message"), is_token_id)


def oauthbearer_name(token: bytes, claim: str = SUBJECT) -> str:
    """Return the principal of an OAUTHBEARER client's initial response (RFC 7628): a claim of its JWT.

    The broker checks signature, issuer and dates. Raises TokenError, also for tokens that are not JWTs, or
    encrypted.
    """
    gs2_header, *pairs = token.decode("utf-8", "replace").split("\x01")
    auth = [pair[len("auth=") :] for pair in pairs if pair.startswith("auth=")]
    if not auth:
        raise TokenError("not an OAUTHBEARER initial response")
    scheme, _, credentials = auth[-1].partition(" ")  # as in Kafka: the last one counts
    if scheme.lower() != "bearer":
        raise TokenError("an OAUTHBEARER response whose scheme is not Bearer")
    name = _checked(_claim(credentials.strip(" "), claim), "OAUTHBEARER token")
    _check_authzid((*gs2_header.split(","), "")[1], name)
    return name


def _unescaped(saslname: str) -> str:
    """Decode =2C (comma) and =3D (equals sign); a saslname contains no other `=`."""
    name = saslname.replace("=2C", ",")
    if "=" in name.replace("=3D", ""):
        raise TokenError("a SCRAM name with an escape that is neither =2C nor =3D")
    return name.replace("=3D", "=")


def _check_authzid(field: str, name: str) -> None:
    """Check that a gs2 header's `a=...`, if any, is the name: Kafka does not support acting for others."""
    authzid = field.removeprefix("a=")
    if authzid not in ("", name) and authzid.replace("=2C", ",").replace("=3D", "=") != name:
        raise TokenError("an authorization id that is not the client's own name")


def _claim(jwt: str, claim: str) -> str:
    """Return a claim of a JWT in compact serialization (RFC 7519), if it is text, as Kafka reads it."""
    parts = jwt.split(".")
    if len(parts) != 3:
        raise TokenError(f"a bearer token of {len(parts)} parts, a JWT that can be read has 3")
    payload = parts[1].rstrip("=").replace("+", "-").replace("/", "_")
    try:
        name = _read(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), claim)
        # Kafka's handler for unsigned tokens takes the name as it is, the one for signed tokens trims it.
        return name if not parts[2] and name.strip(_JAVA_SPACES) else name.strip(_JAVA_SPACES)
    except (ValueError, RecursionError):
        pass  # not chained: what was read stands in the error
    raise TokenError(f"a JWT whose claim {claim} cannot be read as text")


def _read(written: bytes, claim: str) -> str:
    """Return a claim of a JSON object as text, "" if it has none. Raises ValueError, RecursionError."""
    try:
        value = _CLAIMS.decode(written).get(claim)
        return "" if value is None else _TEXT.decode(value)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        if len(written) > ODD_BYTES_MAX:
            raise ValueError("too long") from None
    return _text(_as_jackson(written).get(claim, ""))


def _as_jackson(written: bytes) -> dict[str, object]:
    """Return what Jackson makes of a JSON object, whatever follows it. Raises ValueError, RecursionError."""
    found, _end = _JSON.raw_decode(_characters(written).lstrip(_JSON_SPACES))
    if not isinstance(found, dict):
        raise ValueError("no object")  # of what was read, not of an argument
    return found


def _characters(written: bytes) -> str:
    """Return JSON's characters as Jackson reads them: in UTF-8, -16 or -32, whichever the first bytes tell.

    In UTF-8 it takes every sequence of the right shape, also overlong ones and surrogates. These become
    escapes, so that none can end a string; stray bytes become NUL, which JSON has nowhere.
    """
    encoding = json.detect_encoding(written)
    if not encoding.startswith("utf-8"):
        return written.decode(encoding, "replace")
    return _SEQUENCE.sub(_escaped, written.removeprefix(BOM_UTF8)).translate(_STRAY).decode("ascii")


def _escaped(sequence: re.Match[bytes]) -> bytes:
    lead, *rest = sequence[0]
    value = lead & (0x3F >> len(rest))
    for byte in rest:
        value = value << 6 | byte & 0x3F
    if len(rest) < 3:
        return b"\\u%04x" % value
    value -= 0x10000
    return b"\\u%04x\\u%04x" % ((0xD800 | value >> 10) & 0xFFFF, 0xDC00 | value & 0x3FF)


def _text(value: object) -> str:
    """Return a claim as text, as `JsonNode.asText` does. Raises ValueError for one that is no text.

    A surrogate without its other half becomes a question mark, as in the name that Kafka's quotas know.
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, str):
        raise ValueError("no text")  # of what was read, not of an argument
    whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _LONE_SURROGATE.sub("?", whole)


def _number(_digits: str) -> bytes:
    """Stand in for a number: no claim that is one is a name, and the conversion takes long."""
    return b""


_JSON: Final = json.JSONDecoder(parse_int=_number, parse_float=_number, parse_constant=_number)
_CLAIMS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)
_STRAY: Final = bytes(range(128)) + bytes(128)
_JSON_SPACES: Final = " \t\r\n"
_SEQUENCE: Final = re.compile(rb"[\xc0-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf7][\x80-\xbf]{3}")
_LONE_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


def _checked(name: str, where: str) -> str:
    if not name:
        raise TokenError(f"a {where} without a name")
    if len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise TokenError(f"a {where} with a name of more than {NAME_BYTES_MAX} bytes")
    return name
