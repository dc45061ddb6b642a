"""What the rules of a session see of how quotas are managed: the table, who may change it, and the way to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from quotas import QuotaTable

if TYPE_CHECKING:
    from quotas.table import Quota

Changes: TypeAlias = "Mapping[Quota, float | None]"
"""What is to have another value; None: none any more."""
T = TypeVar("T")


class QuotaAdmin(Protocol):
    """Quota management of one process; its calls are made, and answered, on the reactor's thread."""

    @property
    def table(self) -> QuotaTable:
        """What is stored, as far as it is known."""

    def rejection(self, user: str, peer: str) -> str | None:
        """Why a principal of this name may not describe and alter quotas, in one line; None if it may.

        `peer` is where it asks from.
        """

    def alter(self, changes: Changes, who: str, peer: str, done: Callable[[str | None], None]) -> None:
        """Store the changes, put them in force and log who made them; then call `done(None)`, or
        `done(reason)` if the store cannot take them.

        `who` is the name of a principal, `peer` where it asks from.
        """

    def compute(self, work: Callable[[], T], done: Callable[[T | None], None]) -> None:
        """Do work that takes long in a thread, then call `done` with its result; None if it failed."""

    def altered_at_broker(self) -> None:
        """A broker has answered an AlterClientQuotas that passed through: what it stores may be new."""


class NoQuotaAdmin:
    """Management of a process that has none: nobody may ask for anything."""

    table = QuotaTable()

    def rejection(self, user: str, peer: str) -> str | None:  # noqa: ARG002  # nobody may
        """Say so."""
        return "quotas are not managed here"

    def alter(self, changes: Changes, who: str, peer: str, done: Callable[[str | None], None]) -> None:  # noqa: ARG002
        """Refuse: nobody may ask for this."""
        done("quotas are not managed here")

    def compute(self, work: Callable[[], T], done: Callable[[T | None], None]) -> None:
        """Do it here and now."""
        done(work())

    def altered_at_broker(self) -> None:
        """Nobody mirrors it."""
