"""Whose name a client puts into a SASL exchange: read from its tokens as Kafka's own servers read them.

A token is the bytes of one step of a mechanism, whether they come bare (SaslHandshake v0) or in a
SaslAuthenticate request. What is read here is what the client *claims*; the broker says whether it is true.
Where brokers are strict these functions are lenient, but whatever Kafka accepts, they give the very name that
Kafka gives it (PlainSaslServer, ScramSaslServer, OAuthBearerSaslServer).

Every function raises TokenError for a token without a name. Its text never has a byte of the token.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import Final, NamedTuple

import msgspec

from protocol.errors import TokenError

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"

SUBJECT: Final = "sub"
"""The claim of a JWT that is the principal's name unless Kafka is told otherwise
(sasl.oauthbearer.sub.claim.name).
"""
NAME_BYTES_MAX: Final = 32_767
"""What a string of Kafka's protocol can be: no quota can be set for a longer name."""
_JAVA_SPACES: Final = "".join(map(chr, range(33)))
"""What Java's String.trim takes away."""


class Claimed(NamedTuple):
    """What a SCRAM client says that it is."""

    name: str
    is_token_id: bool = False
    """The name is a delegation token's id; the principal is its owner (KIP-48)."""


def plain_name(token: bytes) -> str:
    """Return the user of a PLAIN token: `[authzid] NUL authcid NUL passwd` (RFC 4616). Raises TokenError."""
    parts = token.decode("utf-8", "replace").split("\0")
    if len(parts) != 3:  # not named: the last one is the password
        raise TokenError(f"a PLAIN token of {len(parts)} parts, expected 3")
    if parts[0] not in ("", parts[1]):
        raise TokenError("a PLAIN token with an authorization id that is not its user")
    return _checked(parts[1], "PLAIN token")


def scram_name(token: bytes) -> Claimed:
    """Return the user of a SCRAM client-first message (RFC 5802), or the delegation token that it names by
    the extension `tokenauth=true`. Raises TokenError.
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

    Signature, issuer and dates are the broker's business. Raises TokenError, also for tokens that are no JWT
    or are encrypted.
    """
    gs2_header, *pairs = token.decode("utf-8", "replace").split("\x01")
    auth = [pair[len("auth=") :] for pair in pairs if pair.startswith("auth=")]
    if not auth:
        raise TokenError("not an OAUTHBEARER initial response")
    scheme, _, credentials = auth[-1].partition(" ")  # as Kafka: the last one counts
    if scheme.lower() != "bearer":
        raise TokenError("an OAUTHBEARER response whose scheme is not Bearer")
    name = _checked(_claim(credentials.strip(" "), claim).strip(_JAVA_SPACES), "OAUTHBEARER token")
    _check_authzid((*gs2_header.split(","), "")[1], name)
    return name


def _unescaped(saslname: str) -> str:
    """=2C is a comma, =3D an equals sign; there is no other `=` in a saslname."""
    name = saslname.replace("=2C", ",")
    if "=" in name.replace("=3D", ""):
        raise TokenError("a SCRAM name with an escape that is neither =2C nor =3D")
    return name.replace("=3D", "=")


def _check_authzid(field: str, name: str) -> None:
    """A gs2 header's `a=...`, if any, must be the name: Kafka knows no acting for others."""
    authzid = field.removeprefix("a=")
    if authzid not in ("", name) and authzid.replace("=2C", ",").replace("=3D", "=") != name:
        raise TokenError("an authorization id that is not the client's own name")


def _claim(jwt: str, claim: str) -> str:
    """Return a claim of a JWT in compact serialization (RFC 7519), if it is text."""
    parts = jwt.split(".")
    if len(parts) != 3:
        raise TokenError(f"a bearer token of {len(parts)} parts, a JWT that can be read has 3")
    payload = parts[1].rstrip("=").replace("+", "-").replace("/", "_")
    try:
        written = urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        value = _CLAIMS.decode(written).get(claim)
        return "" if value is None else _TEXT.decode(value)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        pass  # not chained: what was read stands in the error
    raise TokenError(f"a JWT whose claim {claim} cannot be read as text")


_CLAIMS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)


def _checked(name: str, where: str) -> str:
    if not name:
        raise TokenError(f"a {where} without a name")
    if len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise TokenError(f"a {where} with a name of more than {NAME_BYTES_MAX} bytes")
    return name
