"""The measured targets: one module per target, and the table of all targets.

To add a proxy, add a module that defines a `Target`, and an entry to the table here. The target then appears
in all printed tables.
"""

from __future__ import annotations

from typing import Final

from bench.targets import direct, haproxy, kafka_proxy, kroxylicious, weir, weir_compiled
from bench.targets.target import Running, Surroundings, Target, TargetError

__all__ = ["TARGETS", "Running", "Surroundings", "Target", "TargetError"]

TARGETS: Final[tuple[Target, ...]] = (
    direct.DIRECT,
    haproxy.HAPROXY,
    kroxylicious.KROXYLICIOUS,
    kafka_proxy.KAFKA_PROXY,
    weir.WEIR,
    weir_compiled.WEIR_COMPILED,
    weir.WEIR_WORKERS,
    weir.WEIR_WITHOUT_QUOTAS,
)
