"""Weir in front of brokers that want SASL, with a login of its own, and whom it has charged."""

from __future__ import annotations

import base64
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tests.integration.test_admin import HOST, Admin
from tests.kafka.sasl import SCRAM_256, USERS, WEIR

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.integration.conftest import StartWeir
    from tests.integration.weir import Weir
    from tests.kafka import Cluster
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
    """Whom a budget belongs to, as metrics have it."""

    user: str
    client_id: str


class Front:
    """Weir, and its admin port."""

    def __init__(
        self, start_weir: StartWeir, cluster: Cluster, directory: Path, quotas: str, *options: str
    ) -> None:
        password = directory / "password"
        password.write_text(WEIR.password)
        self.admin = Admin()
        login = (
            *("--upstream-sasl-mechanism", SCRAM_256, "--upstream-sasl-username", WEIR.name),
            *("--upstream-sasl-password-file", str(password)),
        )
        self.weir: Weir = start_weir(
            cluster.sasl_bootstrap, quotas, options=(*login, *self.admin.options, *options)
        )
        self.admin.wait_for(200)

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""
        return self.weir.bootstrap

    @property
    def broker(self) -> Address:
        """Where clients reach broker 0, without asking first where it is."""
        return HOST, self.weir.port + 1

    def charged(self) -> dict[Sharer, dict[str, float]]:
        """Bytes by quota that each sharer was charged for."""
        found: dict[Sharer, dict[str, float]] = defaultdict(dict)
        for labels, value in self.admin.metrics().rows("weir_entity_bytes_total").items():
            of = dict(labels)
            found[Sharer(of.get("user", ""), of.get("client_id", ""))][of["quota"]] = value
        return dict(found)


def assert_untold(front: Front, said: Iterable[bytes]) -> None:
    """Nothing that Weir has written has a password of `USERS`, or a secret of clients' SASL tokens `said`:
    PLAIN tokens, proofs and bearer tokens; neither as they are nor in base64.
    """
    secrets = {user.password.encode() for user in USERS}
    for token in said:
        secrets |= _secrets(token)
    encoded = {base64.b64encode(secret).rstrip(b"=") for secret in secrets}
    written = front.weir.written()
    found = [path for path, text in written.items() if any(secret in text for secret in secrets | encoded)]
    assert found == []


def _secrets(token: bytes) -> set[bytes]:
    if token.count(b"\0") == 2:
        return {token, token.rpartition(b"\0")[2]}
    if b"\1auth=" in token:
        jwt = token.partition(b"\1auth=")[2].strip(b"\1").partition(b" ")[2]
        return {token, jwt, jwt.split(b".")[1]} if b"." in jwt else {token, jwt}
    if b",r=" in token:  # SCRAM: the first message has nothing secret, the last one the proof
        return {token.rpartition(b",p=")[2]} if b",p=" in token else set()
    return {token} if len(token) > 1 else set()
