"""Change the quotas in force at once, where Weir pauses between the steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from weir.quotas import QuotaTable


class Changing(Protocol):
    """Quotas of one key, a broker, a cluster, or all brokers."""

    def use(self, table: QuotaTable) -> None:
        """Make later look-ups of limits use `table`."""

    def refresh(self) -> Iterator[None]:
        """Give existing limiters the limits in force, in steps."""


def put_in_force(quotas: Changing, table: QuotaTable) -> None:
    quotas.use(table)
    for _step in quotas.refresh():
        pass
