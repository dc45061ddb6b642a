"""Whatever clients send, in whatever pieces: who a broker runs a request as is who pays for it."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from tests.kfake.login import KERBEROS, USERS, SaslBroker, saslname
from tests.proxy.sasl import AP_REQ, PROOF, WRAPPED, authenticate, bare, bearer, handshake, plain, scram_first
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import request
from weir.protocol.messages import ApiVersionsRequest, ProduceRequest
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.sasl.identity import Identities, IdentityRules
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable

PRODUCE: Final = QuotaKey.PRODUCER_BYTE_RATE
LAVISH: Final = QuotaTable({(Entity(user=DEFAULT), PRODUCE): 1e12})


class Client:
    """Somebody who mostly means to log in, and does other things as well."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._id = 0

    def frames(self) -> list[bytes]:
        said = []
        for _ in range(self.random.randint(1, 5)):
            roll = self.random.random()
            if roll < 0.6:
                said += self._log_in()
            elif roll < 0.7:
                said.append(request(ApiVersionsRequest(), 0, self._next()))
            elif roll < 0.85:
                said.append(self._framed(self._odd_token(), bare_=roll > 0.8))
            said += [self._produce() for _ in range(self.random.randint(0, 3))]
        return said

    def pieces(self) -> list[bytes]:
        said = self.frames()
        cut = self.random.choice(("all", "frames", "bytes"))
        if cut == "frames":
            return said
        stream, size = b"".join(said), self.random.randint(1, 60)
        return [stream] if cut == "all" else [stream[at : at + size] for at in range(0, len(stream), size)]

    def _next(self) -> int:
        self._id += 1
        return self._id

    def _produce(self) -> bytes:
        return request(ProduceRequest(acks=1), 7, self._next(), b"x" * self.random.randrange(5))

    def _log_in(self) -> list[bytes]:
        user, version = self.random.choice(USERS), self.random.choice((0, 1, 1))
        tokens = {
            "PLAIN": [plain(user)],
            "SCRAM-SHA-256": [scram_first(saslname(user)), PROOF],
            "OAUTHBEARER": [bearer({"sub": user})],
            "GSSAPI": [AP_REQ, WRAPPED],
            "NONE": [b"x"],
        }
        mechanism = self.random.choice(list(tokens))
        said = tokens[mechanism]
        if self.random.random() < 0.4:
            said.insert(self.random.randint(0, len(said)), self._odd_token())
        if self.random.random() < 0.2:
            said.pop()
        is_bare = (version == 0) == (self.random.random() < 0.9)
        frames = [handshake(mechanism, version, self._next())]
        for token in said:
            frames.append(self._framed(token, bare_=is_bare))
            if self.random.random() < 0.08:
                frames.append(self._produce())
        return frames

    def _framed(self, token: bytes, *, bare_: bool) -> bytes:
        return bare(token) if bare_ else authenticate(token, self.random.choice((0, 1, 2)), self._next())

    def _odd_token(self) -> bytes:
        user = self.random.choice(USERS)
        return self.random.choice(
            (
                plain(user),
                plain(user) + b"x",
                scram_first(saslname(user)),
                scram_first(saslname(user), ",tokenauth=true"),
                PROOF,
                bearer({"sub": user}),
                bearer({"sub": "mallory"}),
                b"\x01",
                AP_REQ,
                WRAPPED,
                b"",
                b"?",
            )
        )


def charged(seed: int) -> tuple[dict[str, float], SaslBroker, bool]:
    """What was charged to each user, what the broker says, and whether the connection was ended by Weir."""
    random = Random(seed)
    broker, client = SaslBroker(random=random), Client(random)
    identities = Identities(IdentityRules(unreadable=KERBEROS))
    wire = Wire(new_connection(LAVISH, plans=Plans(Counters(), identities=identities)))
    for piece in client.pieces():
        wire.feed(0, client=piece)
        while wire.to_broker and not broker.closed and wire.connection.effects.close_reason is None:
            asked = bytes(wire.to_broker)
            wire.to_broker.clear()
            answers, size = broker.feed(asked), random.choice((7, 1 << 20))
            for at in range(0, len(answers), size):
                wire.feed(0, broker=answers[at : at + size])
        if broker.closed or wire.connection.effects.close_reason is not None:
            break
    ended = wire.connection.effects.close_reason is not None
    return {budget.tags.user: budget.charged for budget in wire.connection.quotas.produce}, broker, ended


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_a_request_is_charged_to_the_principal_that_the_broker_runs_it_as(first: int) -> None:
    run_as: set[str] = set()
    for seed in range(first, first + 100):
        paid, broker, ended = charged(seed)
        run_as |= broker.run_as.keys()
        for user, size in broker.run_as.items():
            assert paid.get(user, 0) >= size, f"seed {seed}: {user} has not paid, but {paid}"
        if not broker.closed and not ended:
            known = {user: size for user, size in paid.items() if size}
            assert known == dict(broker.run_as), f"seed {seed}"
    assert len(run_as) > 2, "nobody gets in"
