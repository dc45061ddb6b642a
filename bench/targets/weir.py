"""Weir, as `weir run` starts it: with every quota that it enforces charged, and with none."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import bench
from bench.frames import CLIENT_ID, client_ids
from bench.targets.target import Running, Surroundings, Target, start_process
from quotas import DEFAULT, Entity
from quotas.quota_entry import UNITS
from quotas.table import keys_of
from tests.kafka.ports import free_range
from tests.kafka.settings import HOST

BROKER_PORTS: Final = 2
CLIENT_KEYS: Final = tuple(key.value for key in keys_of(Entity(client_id=DEFAULT)) if key in UNITS)
"""What Weir enforces for clients."""
NEVER_REACHED: Final = 10**15
"""A limit per second, whatever it is of: every charge is made, none throttles."""
THIS_TREE: Final = Path(bench.__file__).parent.parent
_MAIN: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from cli.main import main; main()"


def _start(surroundings: Surroundings, name: str, tree: Path, quotas: str | None) -> Running:
    port = free_range(1 + BROKER_PORTS)
    command = [
        *(sys.executable, "-c", _MAIN, str(tree), "run"),
        *("--upstream", f"{HOST}:{surroundings.broker_port}"),
        *("--listen", f"{HOST}:{port}"),
        *("--broker-ports", f"{port + 1}-{port + BROKER_PORTS}"),
    ]
    if quotas is not None:
        file = surroundings.directory / f"{name}.toml"
        file.write_text(quotas)
        command += ["--quotas", str(file)]
    return start_process(surroundings, name, command, port)


def quota_file(entities: Iterable[str] = (CLIENT_ID,)) -> str:
    """A quota for each client-id, under every key that Weir enforces."""
    limits = "".join(f"{key} = {NEVER_REACHED}\n" for key in CLIENT_KEYS)
    return "".join(f'[[quota]]\nclient_id = "{client_id}"\n{limits}' for client_id in entities)


def with_entities(count: int) -> Target:
    """Weir with so many client-ids in its quotas. With one, that is the default, which is for all of them."""
    file = quota_file(client_ids(count) if count > 1 else ["<default>"])
    name = f"weir-{count}"
    return Target(
        name, f"{count:,} {'entities' if count > 1 else 'entity'}", lambda s: _start(s, name, THIS_TREE, file)
    )


def other_tree(tree: Path) -> Target:
    """Weir from another checkout, with quotas: to compare two states of the code in one run."""
    name = f"weir@{tree.name}"
    return Target(name, f"Weir, quotas on ({tree.name})", lambda s: _start(s, name, tree, quota_file()))


WEIR: Final = Target("weir", "Weir, quotas on", lambda s: _start(s, "weir", THIS_TREE, quota_file()))
WEIR_WITHOUT_QUOTAS: Final = Target(
    "weir-no-quotas",
    "Weir, no quotas",
    lambda s: _start(s, "weir-no-quotas", THIS_TREE, None),
)
