"""Names in SASL tokens.

What is expected is Kafka's reading (PlainSaslServer, ScramMessages and ScramFormatter,
OAuthBearerClientInitialResponse), and the RFCs' own examples.
"""

from __future__ import annotations

import base64
import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.protocol.errors import TokenError
from weir.protocol.sasl import NAME_BYTES_MAX, Claimed, oauthbearer_name, plain_name, scram_name

SECRET: Final = "s3cr3t-of-alice"  # noqa: S105  # a test's


def jwt(payload: bytes | dict[str, object]) -> str:
    """A JWT in compact serialization, with a signature that nobody checks."""
    written = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b"{}", written, b"sig"))


def bearer(token: str, gs2: str = "n,,", before: str = "", after: str = "") -> bytes:
    """An initial response; `before` and `after` are other key-value pairs with their separators."""
    return f"{gs2}\x01{before}auth=Bearer {token}\x01{after}\x01".encode()


# PLAIN


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (b"\0tim\0tanstaaftanstaaf", "tim"),  # RFC 4616
        (b"Kurt\0Kurt\0xipj3plmq", "Kurt"),
        ("\0jürgen\0pässword".encode(), "jürgen"),
        (b"\0a,b=c\0p", "a,b=c"),
        (b"\0 \0p", " "),
        (b"\0a\xff\0p", "a�"),
        (b"\0" + b"n" * NAME_BYTES_MAX + b"\0p", "n" * NAME_BYTES_MAX),
        (b"\0nobody\0", "nobody"),  # without a password: the broker refuses it
    ],
)
def test_a_sasl_plain_token_gives_its_user(token: bytes, name: str) -> None:
    assert plain_name(token) == name


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (b"", "1 parts"),
        (b"alice", "1 parts"),
        (b"alice\0" + SECRET.encode(), "2 parts"),
        (b"\0alice\0" + SECRET.encode() + b"\0", "4 parts"),
        (b"\0alice\0" + SECRET.encode() + b"\0b\0c\0d", "6 parts"),
        (b"bob\0alice\0" + SECRET.encode(), "authorization id"),
        (b"\0\0" + SECRET.encode(), "without a name"),
        (b"\0" + b"n" * (NAME_BYTES_MAX + 1) + b"\0p", "more than 32767"),
    ],
)
def test_a_sasl_plain_token_without_a_user_is_an_error(token: bytes, why: str) -> None:
    with pytest.raises(TokenError, match=why) as caught:
        plain_name(token)
    assert SECRET not in str(caught.value)


# SCRAM


@pytest.mark.parametrize(
    ("token", "claimed"),
    [
        (b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", Claimed("user")),  # RFC 7677
        (b"y,,n=user,r=x", Claimed("user")),
        (b"n,a=user,n=user,r=x", Claimed("user")),
        (b"n,,m=ext,n=user,r=x", Claimed("user")),
        (b"n,,n=a=2Cb,r=x", Claimed("a,b")),
        (b"n,,n=a=3Db,r=x", Claimed("a=b")),
        (b"n,,n==3D2C,r=x", Claimed("=2C")),
        (b"n,a=a=2Cb,n=a=2Cb,r=x", Claimed("a,b")),
        (b"n,,n=id,r=x,tokenauth=true", Claimed("id", is_token_id=True)),
        (b"n,,n=id,r=x,other=1,tokenauth=TRUE", Claimed("id", is_token_id=True)),
        (b"n,,n=id,r=x,tokenauth=true,tokenauth=false", Claimed("id")),
        (b"n,,n=id,r=x,tokenauth=yes", Claimed("id")),
        (b"n,,n=id,r=x,TokenAuth=true", Claimed("id")),
        (b"n,,n=r,r=n=,x", Claimed("r")),
    ],
)
def test_a_scram_client_first_message_gives_its_user(token: bytes, claimed: Claimed) -> None:
    assert scram_name(token) == claimed


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (b"", "client-first"),
        (b"n,,", "client-first"),
        (b"n,,n=user", "client-first"),
        (b"n,,r=x,n=user", "client-first"),
        (b"c=biws,r=x,p=AAAA", "client-first"),
        (b"c=biws,r=x,n=bob,r=y,p=AAAA", "client-first"),  # extensions of a client-final message
        (b"n,,n=,r=x", "without a name"),
        (b"n,,n=a=2c,r=x", "neither =2C nor =3D"),
        (b"n,,n=a=,r=x", "neither =2C nor =3D"),
        (b"n,a=bob,n=alice,r=x", "authorization id"),
        (b"n,,n=" + b"n" * (NAME_BYTES_MAX + 1) + b",r=x", "more than 32767"),
    ],
)
def test_a_scram_client_first_message_without_a_user_is_an_error(token: bytes, why: str) -> None:
    with pytest.raises(TokenError, match=why):
        scram_name(token)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_escapes_in_scram_user_names_are_decoded(name: str) -> None:
    """ScramFormatter.saslName: the equals sign first, then the comma."""
    escaped = name.replace("=", "=3D").replace(",", "=2C")
    assert scram_name(f"n,,n={escaped},r=x".encode()) == Claimed(name)


# OAUTHBEARER


@pytest.mark.parametrize(
    "token",
    [
        bearer(jwt({"sub": "alice"})),
        bearer(jwt({"sub": "alice", "exp": 1, "aud": ["a"], "nested": {"sub": "bob"}})),
        bearer(jwt({"sub": "alice"}), gs2="n,a=alice,"),
        bearer(jwt({"sub": "alice"}), before="traceId=123\x01", after="host=x\x01"),
        bearer(jwt({"sub": "bob"})).replace(b"\x01\x01", b"\x01") + bearer(jwt({"sub": "alice"}))[4:],
        bearer(jwt({"sub": "alice"})).replace(b"Bearer ", b"bEARER   "),
        bearer(jwt({"sub": " alice\n"})),  # ClaimValidationUtils.validateSubject trims
        bearer(jwt(b'{"sub":"bob","sub":"alice"}')),
        bearer("e30." + base64.b64encode(b'{"sub":"alice" }').decode() + "."),  # padded; no signature
    ],
)
def test_an_oauthbearer_token_gives_its_subject(token: bytes) -> None:
    assert oauthbearer_name(token) == "alice"


def unsigned(payload: bytes) -> bytes:
    return bearer(".".join(base64.b64encode(part).decode() for part in (b'{"alg":"none"}', payload)) + ".")


JAVAS: Final[dict[bytes, str]] = {
    b'{"exp":1,"sub":"bob"} junk': "bob",
    b'{"exp":1,"sub":"bob"}{"sub":"eve"}': "bob",
    b'{"exp":1,"sub":"bob"}\xff\xff': "bob",
    b'{"exp":1,"sub":"bob"}\x00': "bob",
    b' \n\t{"exp":1,"sub":"bob"}': "bob",
    b'{"exp":1,"sub":" bob "}': " bob ",
    b'{"x":"\\ud800","exp":1,"sub":"bob"}': "bob",
    b'{"\\ud800":1,"exp":1,"sub":"bob"}': "bob",
    b'{"exp":1,"sub":"bob\\ud800"}': "bob?",
    b'{"exp":1,"sub":"\\udc00bob"}': "?bob",
    b'{"exp":1,"sub":"bob\xed\xa0\x80"}': "bob?",
    b'{"exp":1,"sub":"bob\xed\xa0\xbd\xed\xb8\x80"}': "bob\U0001f600",
    b'{"exp":1,"sub":"bob\\ud83d\\ude00"}': "bob\U0001f600",
    b'{"exp":1,"sub":"bo\xc1\xa2"}': "bob",
    b'{"exp":1,"sub":"bo\xc0\xa2b"}': 'bo"b',
    b'{"exp":1,"sub":"bo\xf7\xbf\xbf\xbf"}': "bo??",
    b'\xef\xbb\xbf{"exp":1,"sub":"bob"}': "bob",
    b'{"exp":1,"sub":true}': "true",
    b'{"exp":1,"sub":null}': "null",
    b'{"exp":1,"sub":7,"sub":"bob"}': "bob",
    b'{"exp":1,"x":1e400,"sub":"bob"}': "bob",
    b'{"exp":1,"x":' + b"1" * 900 + b',"sub":"bob"}': "bob",
    b'{"exp":1,"x":' + b"[" * 500 + b"]" * 500 + b',"sub":"bob"}': "bob",
    '{"exp":1,"sub":"\u00a0bob\u2003"}'.encode(): "\u00a0bob\u2003",
    '{"exp":1,"sub":"bob\udc00x"}'.encode("utf-16-be", "surrogatepass"): "bob\ufffdx",
    **{
        '{"exp":1,"sub":"bob\u00fc"}'.encode(encoding): "bob\u00fc"
        for encoding in ("utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-be", "utf-32-le")
    },
}
"""Claims of unsecured tokens that Kafka accepts, and its names: what `OAuthBearerUnsecuredJws` of 3.9.1 says
with Jackson 2.16.2 (4.2.0 says the same), put through Kafka's `Sanitizer` and undone, as quotas know them.
"""


@pytest.mark.parametrize(("payload", "name"), JAVAS.items(), ids=[ascii(payload)[:60] for payload in JAVAS])
def test_an_oauthbearer_token_gives_the_name_that_kafka_reads(payload: bytes, name: str) -> None:
    assert oauthbearer_name(unsigned(payload)) == name


def test_the_name_of_a_signed_oauthbearer_token_is_trimmed() -> None:
    assert oauthbearer_name(bearer(jwt({"sub": " bob "}))) == "bob"


def test_an_oauthbearer_token_gives_the_configured_claim() -> None:
    token = bearer(jwt({"sub": "7d1f", "azp": "payments"}))
    assert oauthbearer_name(token, "azp") == "payments"
    with pytest.raises(TokenError, match="without a name"):
        oauthbearer_name(token, "email")


DEEP: Final = b'{"sub":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (b"", "initial response"),
        (b"\x01", "initial response"),
        (b"n,,\x01\x01", "initial response"),
        (b"n,,\x01auth=Basic YTpi\x01\x01", "scheme"),
        (b"n,,\x01auth=Bearer\x01\x01", "1 parts"),
        (bearer("opaque"), "1 parts"),
        (bearer("a.b.c.d.e"), "5 parts"),
        (bearer("e30.A.s"), "cannot be read"),
        (bearer(jwt(b"not json " + SECRET.encode())), "cannot be read"),
        (bearer(jwt(b'"alice"')), "cannot be read"),
        (bearer(jwt(b"[1]")), "cannot be read"),
        (bearer(jwt(b'{"sub":"\xff"}')), "cannot be read"),
        (bearer(jwt({"sub": 7})), "cannot be read"),
        (bearer(jwt({"sub": ["alice"]})), "cannot be read"),
        (bearer(jwt(DEEP)), "cannot be read"),
        (bearer(jwt({})), "without a name"),
        (bearer(jwt({"sub": ""})), "without a name"),
        (bearer(jwt({"sub": "  "})), "without a name"),
        (bearer(jwt({"sub": "n" * 40_000})), "more than 32767"),
        (bearer(jwt({"sub": "alice"}), gs2="n,a=bob,"), "authorization id"),
    ],
)
def test_an_oauthbearer_token_without_its_claim_is_an_error(token: bytes, why: str) -> None:
    with pytest.raises(TokenError, match=why) as caught:
        oauthbearer_name(token)
    assert SECRET not in str(caught.value)
    context = caught.value.__context__
    assert context is None, "an error with what was read in it must not be chained"


# Whatever comes
