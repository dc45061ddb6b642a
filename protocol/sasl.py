"""The name in a client's SASL tokens, read as Kafka's own servers read it.

A token is one message of a mechanism, either without a Kafka header (SaslHandshake v0) or in a
SaslAuthenticate request. The name is only *claimed*; the broker decides whether it is true. Brokers may be
stricter than these functions, but for every token that Kafka accepts, they return the same name as Kafka
(PlainSaslServer, ScramSaslServer, OAuthBearerSaslServer).

Every function raises TokenError for a token without a name. The error's text never has a byte of the token.
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
"""The claim of a JWT that is the principal's name, unless sasl.oauthbearer.sub.claim.name is set."""
NAME_BYTES_MAX: Final = 32_767
"""Size of the longest string in Kafka's protocol: no quota can be set for a longer name."""
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
    name = _checked(_claim(credentials.strip(" "), claim).strip(_JAVA_SPACES), "OAUTHBEARER token")
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
        pass  # not chained: the original error quotes the token
    raise TokenError(f"a JWT whose claim {claim} cannot be read as text")


_CLAIMS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)


def _checked(name: str, where: str) -> str:
    if not name:
        raise TokenError(f"a {where} without a name")
    if len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise TokenError(f"a {where} with a name of more than {NAME_BYTES_MAX} bytes")
    return name
