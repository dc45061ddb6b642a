"""Names of clients in SASL tokens, read like in Kafka's own SASL servers.

A token is one message of a mechanism, either without a Kafka header (SaslHandshake v0) or in a
SaslAuthenticate request. The name is only *claimed*; the broker checks the credentials. Brokers may be
stricter than these functions, but for every token that Kafka accepts, they return the same name as Kafka
(PlainSaslServer, ScramSaslServer, OAuthBearerSaslServer).

Every public function raises TokenError for a token without a name. The error's text contains no byte of the
token.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from codecs import BOM_UTF8
from typing import Final, NamedTuple

import msgspec

from weir.protocol.errors import TokenError

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"

SUBJECT: Final = "sub"
"""Claim of a JWT with the principal's name: the default of Kafka's `sasl.oauthbearer.sub.claim.name`."""
NAME_BYTES_MAX: Final = 32_767
"""Maximum size (bytes) of a string in Kafka's protocol: no quota can be set for a longer name."""
ODD_BYTES_MAX: Final = 16 * 1024
"""Maximum size (bytes) of a JWT's claims that are parsed leniently like in Kafka (`_as_jackson`), because
lenient parsing is slow. Claims of more bytes must be valid JSON.
"""
_JAVA_SPACES: Final = "".join(map(chr, range(33)))
"""Characters that Java's String.trim removes."""


class Claimed(NamedTuple):
    """Name that a client claims in a SCRAM token: a user, or the id of a delegation token."""

    name: str
    is_token_id: bool = False
    """True if the name is a delegation token's id; the principal is the token's owner (KIP-48)."""


def plain_name(token: bytes) -> str:
    """Return the user of a PLAIN token: `[authzid] NUL authcid NUL passwd` (RFC 4616). Raises TokenError."""
    parts = token.decode("utf-8", "replace").split("\0")
    if len(parts) != 3:  # UTF-8 is not checked first, because an error would contain the password
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
    scheme, _, credentials = auth[-1].partition(" ")  # the last one counts, as in Kafka
    if scheme.lower() != "bearer":
        raise TokenError("an OAUTHBEARER response whose scheme is not Bearer")
    name = _checked(_claim(credentials.strip(" "), claim), "OAUTHBEARER token")
    _check_authzid((*gs2_header.split(","), "")[1], name)
    return name


def _unescaped(saslname: str) -> str:
    """Return a saslname with =2C (comma) and =3D (equals sign) decoded. Raises TokenError for any
    other `=`.
    """
    name = saslname.replace("=2C", ",")
    if "=" in name.replace("=3D", ""):
        raise TokenError("a SCRAM name with an escape that is neither =2C nor =3D")
    return name.replace("=3D", "=")


def _check_authzid(field: str, name: str) -> None:
    """Compare the authorization id in a SCRAM or OAUTHBEARER header with the client's name. `field`: the text
    `a=...` of the header, or "" if the header has none. Raises TokenError if it has another name than `name`:
    in Kafka, a client cannot act for another user.
    """
    authzid = field.removeprefix("a=")
    if authzid not in ("", name) and authzid.replace("=2C", ",").replace("=3D", "=") != name:
        raise TokenError("an authorization id that is not the client's own name")


def _claim(jwt: str, claim: str) -> str:
    """Return a claim of a JWT in compact serialization (RFC 7519) as text, read like in Kafka; "" if missing.
    Raises TokenError if the JWT is malformed, or the claim is no text.
    """
    parts = jwt.split(".")
    if len(parts) != 3:
        raise TokenError(f"a bearer token of {len(parts)} parts, a JWT that can be read has 3")
    payload = parts[1].rstrip("=").replace("+", "-").replace("/", "_")
    try:
        name = _read(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), claim)
        # Kafka's handler of unsigned tokens does not trim the name; its handler of signed tokens does.
        return name if not parts[2] and name.strip(_JAVA_SPACES) else name.strip(_JAVA_SPACES)
    except (ValueError, RecursionError):
        pass  # the next error is raised outside, not chained, because this error contains a part of the token
    raise TokenError(f"a JWT whose claim {claim} cannot be read as text")


def _read(written: bytes, claim: str) -> str:
    """Return a claim of a JSON object as text; "" if the object lacks the claim. Raises ValueError or
    RecursionError for malformed JSON, ValueError if the claim is no text.
    """
    try:
        value = _CLAIMS.decode(written).get(claim)
        return "" if value is None else _TEXT.decode(value)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        if len(written) > ODD_BYTES_MAX:
            raise ValueError("too long") from None
    return _text(_as_jackson(written).get(claim, ""))


def _as_jackson(written: bytes) -> dict[str, object]:
    """Return a JSON object parsed leniently, like by Jackson; text behind the object is ignored. Raises
    ValueError or RecursionError for malformed JSON.
    """
    found, _end = _JSON.raw_decode(_characters(written).lstrip(_JSON_SPACES))
    if not isinstance(found, dict):
        raise ValueError("no object")  # not TypeError: the JSON is wrong, not the caller
    return found


def _characters(written: bytes) -> str:
    """Return the characters of JSON text in UTF-8, UTF-16 or UTF-32 (detected from the first bytes).

    In UTF-8, Jackson accepts all sequences of the right length, also overlong sequences and surrogates. Here
    they become JSON escapes, so that none of them can end a string. Stray bytes become NUL, which is invalid
    in JSON.
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
    """Return a claim as text, like Jackson's `JsonNode.asText`. Raises ValueError for a number, object or
    array.

    A surrogate without its other half becomes a question mark, as in the names of Kafka's quotas.
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, str):
        raise ValueError("no text")  # not TypeError: the JSON is wrong, not the caller
    whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _LONE_SURROGATE.sub("?", whole)


def _number(_digits: str) -> bytes:
    """Return a placeholder for a number in the JSON text. Numbers are not converted, because the conversion
    of a long one takes long, and no name is a number.
    """
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
