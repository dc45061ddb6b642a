"""Weir in front of brokers that want SASL, with a login of its own, and whom it has charged."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.integration.admin_port import HOST, Admin
from tests.integration.conftest import StartWeir
from tests.integration.weir import Weir
from tests.kafka.sasl import SCRAM_256, USERS, WEIR
from tests.raw import Address

GENEROUS_TO_ALL = """
[[quota]]
user = "<default>"
client_id = "<default>"
producer_byte_rate = 1000000000
consumer_byte_rate = 1000000000
"""
"""Each user has a budget with each client-id, so that metrics tell who was charged, and nobody waits."""
PRODUCED, CONSUMED = "producer_byte_rate", "consumer_byte_rate"


class Sharer(NamedTuple):
    user: str
    client_id: str


class WithSasl(Protocol):
    """Brokers that want SASL; a Cluster, for instance."""

    @property
    def sasl_bootstrap(self) -> str:
        """Where they listen for it."""


class RememberedAdmin(Admin):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[bytes] = []

    def get(self, path: str) -> tuple[int, bytes]:
        """See Admin."""
        status, text = super().get(path)
        self.told.append(text)
        return status, text


class Front:
    def __init__(
        self, start_weir: StartWeir, cluster: WithSasl, directory: Path, quotas: str, *options: str
    ) -> None:
        password = directory / "password"
        password.write_text(WEIR.password)
        self.admin = RememberedAdmin()
        login = (
            *(
                "--set",
                f"upstream_sasl_mechanism={SCRAM_256}",
                "--set",
                f"upstream_sasl_username={WEIR.name}",
            ),
            *("--set", f"upstream_sasl_password_file={password}"),
        )
        self.weir: Weir = start_weir(
            cluster.sasl_bootstrap, quotas, options=(*login, *self.admin.options, *options)
        )
        self.admin.wait_for(200)

    @property
    def bootstrap(self) -> str:
        return self.weir.bootstrap

    @property
    def broker(self) -> Address:
        return HOST, self.weir.port + 1

    def charged(self) -> dict[Sharer, dict[str, float]]:
        found: dict[Sharer, dict[str, float]] = defaultdict(dict)
        for labels, value in self.admin.settled().rows("weir_entity_bytes_total").items():
            of = dict(labels)
            found[Sharer(of.get("user", ""), of.get("client_id", ""))][of["quota"]] = value
        return dict(found)


def assert_untold(front: Front, said: Iterable[bytes]) -> None:
    """Nothing that Weir has written, its debug log and metrics among it, has a password of `USERS`, or a
    secret of clients' SASL tokens `said`: passwords, proofs, bearer tokens; as they are, in base64, in hex.
    """
    secrets = {user.password.encode() for user in USERS}
    for token in said:
        secrets |= _secrets(token)
    forms = {form for secret in secrets for form in _forms(secret)}
    written = {str(path): text for path, text in front.weir.written().items()}
    written |= {f"answer {number}": text for number, text in enumerate(front.admin.told)}
    assert any(b'"authenticated"' in text for text in written.values()), "the log tells of what it may"
    assert [where for where, text in written.items() if any(form in text for form in forms)] == []


def _secrets(token: bytes) -> set[bytes]:
    """What of a token must not be told; all of it where it is none that is known."""
    if token.count(b"\0") == 2:
        return {token.rpartition(b"\0")[2]}
    if b"\1auth=" in token:
        bearer = token.partition(b"\1auth=")[2].partition(b" ")[2].strip(b" ").partition(b"\1")[0]
        return {bearer, bearer.split(b".")[1]} if b"." in bearer else {bearer}
    if b",r=" in token:  # SCRAM: the first message has nothing secret, the last one the proof
        return {token.rpartition(b",p=")[2]} if b",p=" in token else set()
    return {token} if len(token) > 1 else set()


def _forms(secret: bytes) -> set[bytes]:
    """As it may be written; in base64 it looks different in each of three places."""
    forms = {secret, secret.hex().encode()}
    for before, unlike in ((0, 0), (1, 2), (2, 3)):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            forms.add(encode(bytes(before) + secret)[unlike:-4])
    return forms
