"""Quota administration, as connections see it: the quota table, permissions, and changes of quotas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from weir.quotas import QuotaTable

if TYPE_CHECKING:
    from weir.quotas.replication.throttles import ConfigKey
    from weir.quotas.table.quota_table import Quota

Changes: TypeAlias = "Mapping[Quota, float | None]"
"""Quota → new value; None removes the quota."""
ReplicationChanges: TypeAlias = "Mapping[ConfigKey, str | None]"
"""Replication throttle → new value in Kafka's form; None removes the throttle."""
T = TypeVar("T")


class QuotaAdmin(Protocol):
    """Quota administration of one process. Methods and callbacks run on the reactor's thread."""

    @property
    def table(self) -> QuotaTable:
        """Return the stored quotas as Weir has last read them."""

    def rejection(self, user: str, peer: str) -> str | None:
        """Return the reason, in one line, why this principal at address `peer` may not describe and alter
        quotas; None if the principal may.
        """

    def alter(self, changes: Changes, who: str, peer: str, done: Callable[[str | None], None]) -> None:
        """Store the changes, put them in force and log them with the principal. Then call `done(None)`, or
        `done(reason)` if the store rejects them.

        `who` is the principal's name, `peer` its address.
        """

    def alter_replication(
        self, changes: ReplicationChanges, who: str, peer: str, done: Callable[[str | None], None]
    ) -> None:
        """Change replication throttles as `alter` changes quotas."""

    def compute(self, work: Callable[[], T], done: Callable[[T | None], None]) -> None:
        """Call `work` in a thread, then `done` with its result; call `done(None)` if `work` failed."""

    def altered_at_broker(self) -> None:
        """Note that a broker has answered an alteration that Weir has forwarded: its quotas or replication
        throttles may have changed.
        """


class NoQuotaAdmin:
    """Replacement for `QuotaAdmin` in a process without quota administration: it rejects every principal."""

    table = QuotaTable()

    def rejection(self, user: str, peer: str) -> str | None:  # noqa: ARG002  # nobody may
        """Return the reason for rejecting a principal. Every principal is rejected, for the same reason."""
        return "quotas are not managed here"

    def alter(self, changes: Changes, who: str, peer: str, done: Callable[[str | None], None]) -> None:  # noqa: ARG002
        """Call `done` with the reason why nothing was changed."""
        done("quotas are not managed here")

    def alter_replication(
        self,
        changes: ReplicationChanges,  # noqa: ARG002
        who: str,  # noqa: ARG002
        peer: str,  # noqa: ARG002
        done: Callable[[str | None], None],
    ) -> None:
        """Call `done` with the reason why nothing was changed."""
        done("quotas are not managed here")

    def compute(self, work: Callable[[], T], done: Callable[[T | None], None]) -> None:
        """Call `work` at once, on the caller's thread, then `done` with its result."""
        done(work())

    def altered_at_broker(self) -> None:
        """Do nothing, because this process does not read brokers' quotas."""
