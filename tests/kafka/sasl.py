"""Brokers with a SASL_PLAINTEXT listener beside the plain one: which mechanisms it has, and who may come.

PLAIN and SCRAM know `USERS`; OAUTHBEARER takes any unsecured token (RFC 7515, "alg": "none") that has not
expired. Those who come with SCRAM-SHA-512 or OAUTHBEARER must authenticate again every `REAUTHENTICATE_MS`,
from 2.2 on (KIP-368). Delegation tokens are on from 1.1, under KRaft from 3.6.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from tests.kafka.jars import version_tuple

PLAIN: Final = "PLAIN"
SCRAM_256: Final = "SCRAM-SHA-256"
SCRAM_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"

ITERATIONS: Final = 4096
"""The least that Kafka takes."""
REAUTHENTICATE_MS: Final = 5_000
MAX_REAUTH: Final = "connections.max.reauth.ms"
DELEGATION_TOKENS_SINCE: Final = {True: (3, 6), False: (1, 1)}
"""By whether the cluster is KRaft."""

_MODULES: Final = "org.apache.kafka.common.security"
_OAUTH_SINCE: Final = (2, 0)
_LISTENER_JAAS_SINCE: Final = (1, 1)
_SHORT_SECRET_SINCE: Final = (3, 0)
_TIMEOUT_S: Final = 30.0


class User(NamedTuple):
    name: str
    password: str


ALICE: Final = User("alice", "alice-Pw-7c1f0d52")
BOB: Final = User("bob", "bob-Pw-93be44aa")
WEIR: Final = User("weir", "weir-Pw-51d2c8e7")
"""For what Weir itself asks brokers."""
ODD: Final = User("o'neil, o=ps +1%", "odd-Pw-0b6fa1c3")
"""A name that SCRAM must escape. PLAIN does not know it: there, names are keys of a JAAS configuration. It is
ASCII because Kafka's SCRAM takes no other names, though RFC 5802 does.
"""
USERS: Final = (ALICE, BOB, WEIR, ODD)


def mechanisms(version: str) -> list[str]:
    found = [PLAIN, SCRAM_256, SCRAM_512]
    return [*found, OAUTHBEARER] if version_tuple(version) >= _OAUTH_SINCE else found


def server_settings(version: str, *, kraft: bool) -> dict[str, str]:
    """What `server.properties` needs besides the listener itself, which is called SASL_PLAINTEXT."""
    number = version_tuple(version)
    settings = {"sasl.enabled.mechanisms": ",".join(mechanisms(version))}
    if number >= _LISTENER_JAAS_SINCE:
        for mechanism, entry in _entries(version).items():
            settings[f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config"] = entry
    if number >= (2, 2):
        for mechanism in (SCRAM_512, OAUTHBEARER):
            settings[f"listener.name.sasl_plaintext.{mechanism.lower()}.{MAX_REAUTH}"] = str(
                REAUTHENTICATE_MS
            )
    if number >= DELEGATION_TOKENS_SINCE[kraft]:
        name = "secret" if number >= _SHORT_SECRET_SINCE else "master"
        settings[f"delegation.token.{name}.key"] = "a key that every broker of a cluster shares"
    return settings


def jaas_file(version: str) -> str | None:
    """The JAAS file of a broker that cannot have this in its `server.properties`; None if it can."""
    if version_tuple(version) >= _LISTENER_JAAS_SINCE:
        return None
    entries = dict.fromkeys(entry.rstrip(";") for entry in _entries(version).values())
    return "KafkaServer {\n" + "".join(f"{entry};\n" for entry in entries) + "};\n"


def _entries(version: str) -> dict[str, str]:
    """The login module of each mechanism, as JAAS writes it."""
    known = " ".join(f'user_{user.name}="{user.password}"' for user in USERS if user is not ODD)
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    oauth = f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    entries = {
        PLAIN: f"{_MODULES}.plain.PlainLoginModule required {known};",
        SCRAM_256: scram,
        SCRAM_512: scram,
        OAUTHBEARER: oauth,
    }
    return {mechanism: entries[mechanism] for mechanism in mechanisms(version)}


def zookeeper_nodes(users: Iterable[User] = USERS, salt: bytes | None = None) -> dict[str, bytes]:
    """The SCRAM credentials of users as ZooKeeper keeps them (KIP-84): path to content."""
    salt = salt or secrets.token_bytes(16)
    digests = {SCRAM_256: "sha256", SCRAM_512: "sha512"}
    return {
        f"/config/users/{quote(user.name, safe='')}": json.dumps(
            {"version": 1, "config": {name: _stored(user, digest, salt) for name, digest in digests.items()}}
        ).encode()
        for user in users
    }


def _stored(user: User, digest: str, salt: bytes) -> str:
    """What a server keeps instead of the password (RFC 5802, section 3), as Kafka writes it."""
    salted = hashlib.pbkdf2_hmac(digest, user.password.encode(), salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", digest)
    parts = {
        "salt": salt,
        "stored_key": hashlib.new(digest, client_key).digest(),
        "server_key": hmac.digest(salted, b"Server Key", digest),
    }
    encoded = [f"{name}={base64.b64encode(part).decode()}" for name, part in parts.items()]
    return ",".join([*encoded, f"iterations={ITERATIONS}"])


def upsert_scram(admin: AdminClient, users: Sequence[User] = USERS) -> None:
    """Tell a cluster of 2.7 or newer the SCRAM credentials of users (KIP-554). Raises KafkaException."""
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        kind = ScramCredentialInfo(mechanism, ITERATIONS)  # librdkafka takes each user once per request
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user.name, kind, user.password.encode()) for user in users
        ]
        for future in admin.alter_user_scram_credentials(wanted, request_timeout=_TIMEOUT_S).values():
            future.result(_TIMEOUT_S)


def unsecured_token(claims: Mapping[str, object]) -> str:
    """A JSON web token without a signature: what OAUTHBEARER's unsecured validator takes. `exp` is needed."""
    parts = ({"alg": "none"}, dict(claims))
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join(encoded) + "."
