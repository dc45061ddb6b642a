"""A cluster whose brokers reach each other through Weir."""

from __future__ import annotations

from types import TracebackType
from typing import Self, Unpack

from tests.integration.weir import Weir
from tests.kafka import ports
from tests.kafka.cluster import Cluster
from tests.kafka.fixtures import ClusterOptions
from tests.kafka.settings import HOST


class ReplicatedCluster:
    """Brokers, and a Weir in front of their listeners for clients and for each other; a context manager.

    `cluster.bootstrap` is where clients reach brokers without Weir, `weir.bootstrap` where through Weir.
    """

    def __init__(
        self,
        version: str,
        quotas: str = "",
        *,
        weir_options: tuple[str, ...] = (),
        **options: Unpack[ClusterOptions],
    ) -> None:
        """`quotas` is the text of a quota file, `weir_options` further options of `weir run`."""
        count = options.setdefault("brokers", 3)
        self.replication_port = ports.free_range(count)
        """Port of Weir's replication listener for the first broker; the next broker has the next port."""
        first_port = ports.free_range(count)
        self.cluster = Cluster(version, port=first_port, replication_at=self.replication_port, **options)
        self._upstream = ",".join(f"{HOST}:{first_port + index}" for index in range(count))
        self._quotas = quotas
        self._options = (
            *("--set", f"replication_upstream={self.cluster.replication_upstream}"),
            *("--set", f"replication_listen={options.get('first_id', 0)}@{HOST}:{self.replication_port}"),
            *weir_options,
        )
        self.weir = self._new_weir()

    def __enter__(self) -> Self:
        self.weir.__enter__()  # before brokers need each other
        try:
            self.cluster.start()
        except BaseException:
            self.weir.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.cluster.__exit__(kind, error, trace)
        finally:
            self.weir.__exit__(kind, error, trace)

    def stop_weir(self) -> None:
        assert self.weir.stop() == 0

    def start_weir(self) -> None:
        """Start a new Weir: brokers find it at the same ports, clients at other ports. Raises WeirError."""
        self.weir.close()
        self.weir = self._new_weir()
        self.weir.start()

    def _new_weir(self) -> Weir:
        return Weir(self._upstream, self._quotas, options=self._options)
