"""The principals that may describe and alter quotas."""

from __future__ import annotations

from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.logs import audit_logger

audit = audit_logger("weir.audit")


class QuotaAdmins:
    """Rejects the quota requests of all other principals; counts and logs the rejections."""

    def __init__(self, names: frozenset[str], state: StoreHealth) -> None:
        """Reject all principals but those with these names; count the rejections in `state`."""
        self._names = names
        self._state = state

    def rejection(self, user: str, peer: str) -> str | None:
        """Return the reason why this principal may not describe and alter quotas; None if it may. Count a
        rejection, and log it unless another one was logged within a second.
        """
        if user in self._names:
            return None
        if self._state.note_denied():
            denied = self._state.denied
            audit.warning("client quotas denied", principal=f"User:{user}", client=peer, denied=denied)
        if not self._names:
            return "Quotas are not managed over this port: Weir is configured without admins."
        return f"User:{user} is none of Weir's admins."
