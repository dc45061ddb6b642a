"""Several ranges of ports, for clusters whose node ids are far apart."""

from __future__ import annotations

from dataclasses import dataclass

from weir.proxy.addresses import PortRange


@dataclass(frozen=True, slots=True)
class PortRanges:
    """A port for each broker, from the first range that has one for its node id. At least one range."""

    ranges: tuple[PortRange, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.ranges))

    def port(self, node_id: int) -> int | None:
        """Return the port of a node; None if the node id is in no range."""
        ports = (found.port(node_id) for found in self.ranges)
        return next((port for port in ports if port is not None), None)

    def has_port(self, port: int) -> bool:
        """Return True if a range contains this port."""
        return any(found.first <= port <= found.last for found in self.ranges)

    def host(self, _node_id: int, host: str) -> str:
        """Return `host` unchanged: clients reach every broker at the address at which they have reached
        Weir.
        """
        return host

    def fitted(self, node_ids: list[int]) -> PortRanges:
        """Return ranges of the same ports that serve these node ids; these ranges themselves if they do, if
        none would, or if there are several: then all first node ids are configured.
        """
        found = tuple(ports.fitted(node_ids) for ports in self.ranges)
        return self if len(found) > 1 or found == self.ranges else PortRanges(found)

    def unmapped(self, node_ids: list[int]) -> str | None:
        """Return a line that tells operators which settings to change, if some of these node ids have no
        port; None if all have one.
        """
        if len(self.ranges) == 1:
            return self.ranges[0].unmapped(node_ids)
        strange = [node_id for node_id in sorted(node_ids) if self.port(node_id) is None]
        if not strange:
            return None
        return (
            f"no port for node ids {', '.join(map(str, strange))} ({self}): add a range to --broker-ports, "
            f"FIRST-LAST@{strange[0]}"
        )
