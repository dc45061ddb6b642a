"""Kafka's kafka-configs, unmodified, of any release since 1.0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.java.tools_process import Said, run_tool

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Said", "kafka_configs"]

_TIMEOUT_S = 120.0


def kafka_configs(release: str, calls: Sequence[Sequence[str]]) -> list[Said]:
    """Call kafka-configs of a release with each of these arguments. Raises ClientError."""
    return [run_tool(release, "kafka.admin.ConfigCommand", call, _TIMEOUT_S, silent=True) for call in calls]
