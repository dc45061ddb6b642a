"""Kafka's kafka-configs, unmodified, of any release since 1.0."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.java.tools_process import Said, run_tool
from tests.kafka.jars import version_tuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ADMIN", "Call", "Said", "Transcript", "add", "delete", "kafka_configs", "same", "show"]

Call = tuple[str, ...]
Transcript = list[tuple[Call, Said]]
ADMIN: Final = ("--quota-admins", "User:ANONYMOUS")
"""Options of Weir that let everyone alter quotas."""
_TIMEOUT_S = 120.0


def add(entity: Call, configs: str) -> Call:
    return ("--alter", *entity, "--add-config", configs)


def delete(entity: Call, configs: str) -> Call:
    return ("--alter", *entity, "--delete-config", configs)


def show(entity: Call) -> Call:
    return ("--describe", *entity)


def same(said: Said) -> Said:
    """Without what must differ: ports, and where in the tool an exception came from.

    A description's lines are sorted, and the quotas in each: their order is that of Java's hash tables, in
    which keys of the same slot stand in the order in which they came.
    """
    lines = [line for line in said.err.splitlines() if not line.startswith("\t")]
    err = re.sub(r"--bootstrap-server \S+", "--bootstrap-server HERE", "\n".join(lines))
    return Said(said.status, "\n".join(sorted(map(_in_order, said.out.splitlines()))), err)


def _in_order(line: str) -> str:
    whose, are, quotas = line.rpartition(" are ")
    return whose + are + ", ".join(sorted(quotas.split(", ")))


def kafka_configs(release: str, calls: Sequence[Sequence[str]]) -> list[Said]:
    """Call kafka-configs of a release with each of these arguments. Raises ClientError."""
    package = "kafka.admin" if version_tuple(release) < (4, 3) else "org.apache.kafka.tools"
    return [run_tool(release, f"{package}.ConfigCommand", call, _TIMEOUT_S, silent=True) for call in calls]
