"""The targets of replica fetches: other proxies, and Weir with and without a replication listener.

At Weir's ordinary listener nobody is a broker. There the same fetches are a consumer's, and charged to the
client-id's quotas: the reference for the cost of a fetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.replication.leader import LEADER
from bench.replication.rows import ROWS
from bench.targets import Running, Surroundings, Target, weir
from tests.kafka.ports import free_range
from tests.kafka.settings import HOST
from weir.quotas.replication.throttles import ALL, Role

AS_CONSUMER: Final = weir.WEIR.name
"""Name of the target whose fetches are a consumer's."""


def throttles() -> str:
    """Return the text of a quota file that lists all replicas of the loads' topics, at rates too high to hold
    back any.
    """
    rates = "".join(f"{role.rate_key} = {weir.NEVER_REACHED}\n" for role in Role)
    lists = "".join(f'{role.replicas_key} = "{ALL}"\n' for role in Role)
    return f'[[replication]]\nbroker = "<default>"\n{rates}' + "".join(
        f'[[replication]]\ntopic = "{row.topic}"\n{lists}' for row in ROWS
    )


def _start(surroundings: Surroundings, name: str, tree: Path, quotas: str) -> Running:
    port = free_range(1)
    options = (
        *("--set", f"replication_upstream={LEADER}@{HOST}:{surroundings.broker_port}"),
        *("--set", f"replication_listen={HOST}:{port}"),
    )
    return weir.start(surroundings, name, tree, quotas, *options, measured_port=port)


def _weirs(tree: Path, at: str, note: str) -> list[Target]:
    """Return the targets of Weir with a replication listener. `at` is added to names, `note` to titles."""
    plain, tracked = f"weir-replication{at}", f"weir-throttled{at}"
    quotas = weir.quota_file()
    return [
        Target(
            plain,
            f"Weir, replication without throttles{note}",
            lambda surroundings: _start(surroundings, plain, tree, quotas),
        ),
        Target(
            tracked,
            f"Weir, all replicas throttled{note}",
            lambda surroundings: _start(surroundings, tracked, tree, quotas + throttles()),
        ),
    ]


def targets(chosen: Sequence[Target], trees: Sequence[Path]) -> list[Target]:
    """Return the chosen targets without those of Weir's quotas; behind Weir the targets with a replication
    listener, also those of each checkout in `trees`.
    """
    others = [target for target in chosen if not target.name.startswith(weir.WEIR.name)]
    ours: list[Target] = []
    if any(target.name == AS_CONSUMER for target in chosen):
        ours = [replace(weir.WEIR, title="Weir, as a consumer's fetch"), *_weirs(weir.THIS_TREE, "", "")]
    return others + ours + [one for tree in trees for one in _weirs(tree, f"@{tree.name}", f" ({tree.name})")]
