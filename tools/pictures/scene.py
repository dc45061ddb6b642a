"""Run a real Kafka broker, Weir in front of it, and four clients under different quotas."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tests.kafka as kafka
from weir.demo.client_specs import ClientSpec
from weir.demo.clusters import real
from weir.demo.environment import WARM_UP_S, ClientSet, running, ticks
from weir.demo.measure import Span
from weir.demo.proxy_process import HOST, free_ports, weir

QUOTAS: Final = Path(__file__).with_name("quotas.toml")
CLIENTS: Final = (
    ClientSpec("orders", "producer", 1_000_000, demand=2_000_000),
    ClientSpec("reports", "consumer", 500_000, demand=1_500_000),
    ClientSpec("clicks", "producer", 1_000_000, by_default=True, demand=600_000),
    ClientSpec("audit", "consumer", None, demand=800_000),
)
"""The clients. `quotas.toml` has the same quotas, and a shadow quota of `audit`."""
VERSION: Final = "4.2.0"
"""Version of Kafka."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Running processes."""

    address: str
    """HOST:PORT of the admin endpoint."""
    token: str
    client_sets: Sequence[ClientSet]

    @property
    def url(self) -> str:
        return f"http://{self.address}/"

    def measure(self, seconds: float) -> list[Span]:
        """Wait; return the readings of the clients before and after. Raises DemoError if one has failed."""
        began = [each.read() for each in self.client_sets]
        for _ in ticks(seconds):
            pass
        return [Span(first, each.read()) for first, each in zip(began, self.client_sets, strict=True)]


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """Run Kafka, Weir and the clients until the block ends. Raises DemoError, ClusterError,
    JarError, JavaMissingError.
    """
    quotas, token = folder / "quotas.toml", folder / "admin.token"
    quotas.write_text(QUOTAS.read_text("utf-8"), "utf-8")
    token.touch(0o600)
    token.write_text(secrets.token_urlsafe(24), "utf-8")
    address = f"{HOST}:{free_ports([0])[0]}"
    settings = {
        "admin": address,
        "admin_token_file": str(token),
        "log_level": "info",
    }
    with (
        kafka.Cluster(VERSION, first_id=1, optimized=True) as broker,
        real(broker.bootstrap) as cluster,
        weir(cluster.upstream, cluster.node_ids, quotas, settings) as bootstrap,
    ):
        client_sets = [ClientSet(spec, bootstrap, cluster) for spec in CLIENTS]
        with running(client_sets):
            _warm_up(client_sets)
            yield Scene(address, token.read_text("utf-8"), client_sets)


def _warm_up(client_sets: Sequence[ClientSet]) -> None:
    """Let the clients of throttled sets begin at their quotas, so that they do not use a window at once."""
    over = [each for each in client_sets if each.spec.quota and each.spec.demand > each.spec.quota]
    for each in over:
        each.warm_up()
    time.sleep(WARM_UP_S)
    for each in over:
        each.speed_up()
