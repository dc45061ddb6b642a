"""The destination of a listener's connections."""

from __future__ import annotations

from typing import Final, NamedTuple


class Target(NamedTuple):
    """The broker, and its listener, to which the connections of one of Weir's listeners go."""

    node_id: int | None
    """Node id of the broker; None for any broker (the bootstrap listener)."""
    is_replication: bool = False
    """True if the connections go to the broker's inter-broker listener: other brokers are the clients."""

    def __str__(self) -> str:
        """Return the listener's name for operators, such as `broker 2`."""
        if self.is_replication:
            return f"replication {self.node_id}"
        return "bootstrap" if self.node_id is None else f"broker {self.node_id}"

    @property
    def log_fields(self) -> dict[str, object]:
        """Fields by which log lines name the listener."""
        fields: dict[str, object] = {"node_id": self.node_id}
        return {**fields, "replication": True} if self.is_replication else fields


BOOTSTRAP: Final = Target(None)
