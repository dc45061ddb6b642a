"""What Weir must look like when its clients have gone, whatever became of its brokers meanwhile."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tests.integration.descriptors import (
    connected_ports,
    family,
    listening_ports,
    open_count,
    open_descriptors,
)
from tests.integration.traffic import until
from tests.integration.weir import Weir
from tests.integration.weir_log import entries
from weir.proxy.close_reasons import CloseReason

EXPECTED: Final = frozenset(
    {
        CloseReason.CLIENT_CLOSED,
        CloseReason.CLIENT_RESET,
        CloseReason.BROKER_CLOSED,
        CloseReason.BROKER_RESET,
        CloseReason.BROKER_UNREACHABLE,
    }
)
"""Why sessions may end while brokers die and clients come and go."""


class Aftermath:
    """Made before the first client of a Weir that knows brokers `node_ids`; `check` when all have gone."""

    def __init__(self, weir: Weir, node_ids: Iterable[int]) -> None:
        self._weir = weir
        self._node_ids = set(node_ids)
        until(lambda: self._listening() == self._wanted(), lambda: f"listeners, not {self._listening()}")
        until(lambda: self._established() == set(), lambda: f"no connections, not {self._established()}")
        self._before = open_count(weir.pid)

    @property
    def reasons(self) -> Counter[str]:
        return Counter(str(entry["reason"]) for entry in self._ended())

    def port(self, node_id: int) -> int:
        return self._weir.port + 1 + node_id

    def came(self, node_id: int) -> None:
        """One more broker is there, and so one more listener."""
        self._node_ids.add(node_id)
        until(lambda: self._listening() == self._wanted(), lambda: f"listeners, not {self._listening()}")
        self._before += 2  # Weir's listening socket, and the worker's copy

    def assert_all_through_weir(self, broker_ports: Iterable[int]) -> None:
        """No client in this process is connected to a broker itself. Call it while they talk."""
        past = connected_ports(os.getpid()) & set(broker_ports)
        assert not past, f"clients were told of the brokers' own ports: {past}"

    def check(self) -> None:
        """Nothing is left of the clients, and nothing happened that should not. Ends Weir."""
        until(
            lambda: open_count(self._weir.pid) <= self._before,  # Weir looks at addresses meanwhile
            lambda: f"{self._before} descriptors at most, not {self._open()}",
        )
        assert self._listening() == self._wanted()
        assert self._weir.stop() == 0
        assert set(self.reasons) <= EXPECTED, self.reasons
        errors = [entry for entry in entries(self._weir.log) if entry["level"] == "error"]
        assert not errors

    def _open(self) -> list[dict[int, str]]:
        return [open_descriptors(pid) for pid in family(self._weir.pid)]

    def _wanted(self) -> set[int]:
        return {self._weir.port, *map(self.port, self._node_ids)}

    def _listening(self) -> set[int]:
        """The ports at which each of Weir's processes listens: a worker gets its copies a little later."""
        return set.intersection(*map(listening_ports, family(self._weir.pid)))

    def _established(self) -> set[int]:
        return connected_ports(*family(self._weir.pid))

    def _ended(self) -> list[dict[str, object]]:
        named = ("connection closed", "connection refused")
        return [entry for entry in entries(self._weir.log) if entry["event"] in named]
