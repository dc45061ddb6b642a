"""Measure the cost of an authenticated connection: the same load through two Weirs, on plain connections and
on connections of a user. Both Weirs have the same quotas, one for the client-id and one for the user. On a
user's connections, the user's quota takes precedence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bench.entry import Entry
from bench.frames import CLIENT_ID, sasl_plain
from bench.rows import Row
from bench.targets import Running, Surroundings, Target, TargetError, weir
from tests.kafka.sasl import ALICE

ROW_NAMES: Final = ("metadata-1", "metadata-8x16", "produce-100b", "fetch-100b")
QUOTAS: Final = weir.quota_file([CLIENT_ID]) + weir.quota_file([ALICE.name], "user")
ENTRY: Final = Entry(greetings=tuple(request.frame(CLIENT_ID).hex() for request in sasl_plain(*ALICE)))


def _start_plain(surroundings: Surroundings) -> Running:
    return weir.start(surroundings, "weir-plain", weir.THIS_TREE, QUOTAS)


def _start_sasl(surroundings: Surroundings) -> Running:
    if not surroundings.sasl_port:
        raise TargetError("there is no broker to authenticate with")
    behind = replace(surroundings, broker_port=surroundings.sasl_port)
    return replace(weir.start(behind, "weir-sasl", weir.THIS_TREE, QUOTAS), entry=ENTRY)


PLAIN: Final = Target("weir-plain", "plain connections", _start_plain)
SASL: Final = Target("weir-sasl", "authenticated with SASL PLAIN", _start_sasl)
TARGETS: Final = (PLAIN, SASL)


def rows(chosen: Sequence[Row]) -> list[Row]:
    """Return the chosen rows that are also measured with SASL."""
    return [row for row in chosen if row.name in ROW_NAMES]
