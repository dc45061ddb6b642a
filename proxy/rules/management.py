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


class Management(Protocol):
    """Quota management of one process; its calls are made, and answered, on the reactor's thread."""

    @property
    def table(self) -> QuotaTable:
        """What is in force now."""

    def is_admin(self, user: str) -> bool:
        """Whether a principal of this name may describe and alter quotas."""

    def alter(self, changes: Changes, who: str, peer: str, done: Callable[[str | None], None]) -> None:
        """Store the changes, put them in force and log who made them; then call `done(None)`, or
        `done(reason)` if the store cannot take them.
        """

    def compute(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Do work that takes long in a thread, then call `done` with its result."""


class Unmanaged:
    """Management of a process that has none: nobody is an admin."""

    table = QuotaTable()

    def is_admin(self, user: str) -> bool:  # noqa: ARG002  # nobody is
        """Return False."""
        return False

    def alter(self, changes: Changes, who: str, peer: str, done: Callable[[str | None], None]) -> None:  # noqa: ARG002
        """Refuse: nobody may ask for this."""
        done("quotas are not managed here")

    def compute(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Do it here and now."""
        done(work())
