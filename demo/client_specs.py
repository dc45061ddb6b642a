"""Specify the demonstrated clients and their quotas, and write the quota file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from weir.quotas import DEFAULT, Entity, QuotaTable, render
from weir.quotas.table.options import Options, Pacing
from weir.quotas.table.quota_kind import BYTE_RATES

Role: TypeAlias = Literal["producer", "consumer"]

KEYS: Final = dict(zip(("producer", "consumer"), BYTE_RATES, strict=True))


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """Clients that share a client-id, and therefore a quota at each broker. Rates are in bytes/s."""

    client_id: str
    role: Role
    quota: int | None
    """Byte rate (bytes/s) allowed at each broker; None without a quota."""
    clients: int = 1
    every_broker: bool = False
    """True if the clients use all brokers instead of one."""
    by_default: bool = False
    """True if the quota belongs to the default client-id instead of this client-id."""
    demand: int = 5_000_000
    """Byte rate (bytes/s) that the clients together ask for, with and without a quota. A bound keeps the
    demonstration from flooding an existing cluster.
    """
    pacing: Pacing = Pacing.KAFKA

    @property
    def entity(self) -> Entity:
        """Entity of the quota: this client-id, or the default client-id."""
        return Entity(client_id=DEFAULT if self.by_default else self.client_id)


CLIENTS: Final = (
    ClientSpec("orders", "producer", 1_000_000),
    ClientSpec("shared", "producer", 1_000_000, clients=2),
    ClientSpec("everywhere", "producer", 500_000, every_broker=True),
    ClientSpec("reports", "consumer", 1_000_000),
    ClientSpec("newcomer", "producer", 500_000, by_default=True),
    ClientSpec("steady", "producer", 1_000_000, pacing=Pacing.SMOOTH),
    ClientSpec("audit", "consumer", None, demand=3_000_000),
)
"""The demonstrated clients; each client-id shows one property of quotas. Together they need little CPU, so
that quotas decide the rates.
"""


def quota_table(specs: Iterable[ClientSpec]) -> QuotaTable:
    """Return the quotas of all specs that have one."""
    limited = [(spec, (spec.entity, KEYS[spec.role]), spec.quota) for spec in specs if spec.quota is not None]
    smooth = {key: Options(spec.pacing) for spec, key, _quota in limited if spec.pacing is Pacing.SMOOTH}
    return QuotaTable({key: quota for _spec, key, quota in limited}, options=smooth)


def quota_file(specs: Iterable[ClientSpec]) -> str:
    """Return the text of a quota file with the quotas of these specs."""
    return render(quota_table(specs))
