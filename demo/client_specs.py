"""Who takes part: the clients of the demonstration, their quotas, and the quota file that says the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from quotas import DEFAULT, Entity, QuotaKey, QuotaTable, render

Role: TypeAlias = Literal["producer", "consumer"]

KEYS: Final = {"producer": QuotaKey.PRODUCER_BYTE_RATE, "consumer": QuotaKey.CONSUMER_BYTE_RATE}


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """Clients that share a client-id, and so a budget at each broker. Rates are in bytes/s."""

    client_id: str
    role: Role
    quota: int | None
    """At each broker."""
    clients: int = 1
    every_broker: bool = False
    """Whether it uses every broker, not just one."""
    by_default: bool = False
    """Whether the quota is the default client-id's, not its own."""
    pace: int | None = None
    """What it asks for by itself; None: as fast as it may."""

    @property
    def entity(self) -> Entity:
        """Whom its quota is set for."""
        return Entity(client_id=DEFAULT if self.by_default else self.client_id)


CLIENTS: Final = (
    ClientSpec("orders", "producer", 1_000_000),
    ClientSpec("shared", "producer", 1_000_000, clients=2),
    ClientSpec("everywhere", "producer", 500_000, every_broker=True),
    ClientSpec("reports", "consumer", 1_000_000),
    ClientSpec("newcomer", "producer", 500_000, by_default=True),
    ClientSpec("audit", "consumer", None, pace=3_000_000),
)
"""One client per idea; together they use little of a small machine, so that quotas, not CPU, decide."""


def quota_table(specs: Iterable[ClientSpec]) -> QuotaTable:
    """Return the quotas of those who have one."""
    return QuotaTable(
        {(spec.entity, KEYS[spec.role]): spec.quota for spec in specs if spec.quota is not None}
    )


def quota_file(specs: Iterable[ClientSpec]) -> str:
    """Return the text of a quota file for them."""
    return render(quota_table(specs))
