"""Names in SASL tokens. Documented error: TokenError."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from tests.fuzz.growth import fillers
from tests.fuzz.target import Grow, Target, chosen
from tests.proxy.sasl import AP_REQ, PROOF, SALT, VERIFIED, WRAPPED, bearer, plain, scram_first
from weir.protocol.errors import TokenError
from weir.protocol.sasl import GSSAPI, NAME_BYTES_MAX, OAUTHBEARER, PLAIN, SCRAM, SUBJECT, oauthbearer_name
from weir.proxy.handlers.sasl.exchange import SaslExchange

MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER, GSSAPI, "x")


def run(data: bytes) -> None:
    """Follow an exchange of one to four tokens: a claimed name is one that Kafka's protocol can hold."""
    index, rest = chosen(data, len(MECHANISMS))
    exchange = SaslExchange(MECHANISMS[index], SUBJECT, raw=False)
    for token in rest.split(b"\xfe\xfe", 3):
        exchange.token(token)
        if exchange.claimed is not None:
            name = exchange.claimed.name
            assert 0 < len(name.encode("utf-8", "replace")) <= NAME_BYTES_MAX
        exchange.answer(0, token)


def run_claims(data: bytes) -> None:
    """Read the claims of a JWT: any bytes, in base64 as they must be."""
    payload = base64.urlsafe_b64encode(data).rstrip(b"=")
    try:
        name = oauthbearer_name(b"n,,\x01auth=Bearer e30." + payload + b".\x01\x01")
    except TokenError:
        return
    assert name


def seeds() -> Sequence[bytes]:
    end = b"\xfe\xfe"
    return [
        b"\0\0" + plain("alice"),
        b"\0\1" + scram_first("al=2Cice") + end + PROOF + end + VERIFIED,
        b"\0\2" + scram_first("token", ",tokenauth=true") + end + SALT,
        b"\0\3" + bearer({"sub": "alice"}),
        b"\0\4" + AP_REQ + end + WRAPPED,
        b"\0\5x",
    ]


def claim_seeds() -> Sequence[bytes]:
    """Return claims in all the encodings that Jackson detects, and odd ones."""
    text = '{"iss":"x","sub":"al\\u00e4ice","n":[1,{"a":null}],"exp":1e9}'
    return [
        *(
            text.encode(encoding)
            for encoding in ("utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "utf-32-be")
        ),
        b'{"sub":"a\xc0\x80\xed\xa0\x80"} trailing',
        b'{"sub":true,"sub":null}',
        b'{"sub":"\\ud800"}',
    ]


def growing() -> dict[str, Grow]:
    heads = {"plain": b"\0\0\0", "scram": b"\0\1n,,n=a,r=b", "oauth": b"\0\3n,,\x01auth=Bearer e30."}
    patterns = {
        "commas": b",a=b",
        "escapes": b"=2C",
        "nul": b"\0",
        "soh": b"\x01auth=Bearer a.b.c",
        "dots": b".",
    }
    return {
        f"{mechanism}, {name}": _endless(head, pattern)
        for mechanism, head in heads.items()
        for name, pattern in patterns.items()
    }


def growing_claims() -> dict[str, Grow]:
    return dict(fillers()) | {
        "nested arrays": _endless(b'{"a":', b"["),
        "nested objects": _endless(b"", b'{"a":'),
        "keys": _endless(b"{", b'"sub":"a",'),
        "digits": _endless(b'{"sub":', b"9"),
        "escapes": _endless(b'{"sub":"', b"\\u0041"),
        "backslashes": _endless(b'{"sub":"', b"\\\\"),
        "overlong sequences": _endless(b'{"sub":"', b"\xc0\x80"),
        "spaces": _endless(b"", b" "),
    }


def _endless(head: bytes, pattern: bytes) -> Grow:
    return lambda count: head + pattern * count


TOKENS: Final = Target("sasl", run, seeds, growing)
CLAIMS: Final = Target("sasl-claims", run_claims, claim_seeds, growing_claims)
