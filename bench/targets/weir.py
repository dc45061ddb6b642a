"""Weir as `weir run` starts it: with quotas under all keys, and without any quotas."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import bench
from bench import certificate
from bench.entry import PLAIN, Entry
from bench.frames import CLIENT_ID, client_ids
from bench.targets.target import Running, Surroundings, Target, start_process
from tests.kafka.ports import free_range
from tests.kafka.settings import HOST
from weir.quotas import DEFAULT, Entity
from weir.quotas.table.quota_kind import KINDS
from weir.quotas.table.quota_table import keys_of

BROKER_PORTS: Final = 2
CLIENT_KEYS: Final = tuple(
    key.value for key in keys_of(Entity(client_id=DEFAULT)) if key in KINDS and KINDS[key].floor_of is None
)
"""Names of the limits that Weir enforces for client-ids."""
NEVER_REACHED: Final = 10**15
"""A quota so high that Weir charges all requests but throttles none; used for all keys, whatever their unit.
"""
THIS_TREE: Final = Path(bench.__file__).parent.parent
MAIN: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from weir.cli.main import main; main()"


def start(
    surroundings: Surroundings,
    name: str,
    tree: Path,
    quotas: str | None,
    *options: str,
    entry: Entry = PLAIN,
) -> Running:
    """Start the Weir of the checkout `tree`, with `quotas` as the text of its quota file; None for no quotas.
    Raises TargetError.
    """
    port = free_range(1 + BROKER_PORTS)
    command = [
        *(sys.executable, "-c", MAIN, str(tree), "run"),
        *("--upstream", f"{HOST}:{surroundings.broker_port}"),
        *("--listen", f"{HOST}:{port}"),
        *("--broker-ports", f"{port + 1}-{port + BROKER_PORTS}"),
    ]
    if quotas is not None:
        file = surroundings.directory / f"{name}.toml"
        file.write_text(quotas)
        command += ["--quotas", str(file)]
    return start_process(surroundings, name, [*command, *options], port, entry)


def over_tls(name: str, tree: Path) -> Callable[[Surroundings], Running]:
    """Return a function that starts the Weir of the checkout `tree` with quotas and with TLS for clients."""

    def start_it(surroundings: Surroundings) -> Running:
        made = certificate.make(surroundings.directory / f"{name}-tls")
        options = "--set", f"tls_cert={made.chain},{made.key}"
        return start(surroundings, name, tree, quota_file(), *options, entry=Entry(ca=str(made.ca)))

    return start_it


def quota_file(entities: Iterable[str] = (CLIENT_ID,), kind: str = "client_id") -> str:
    """Return the text of a quota file: for each entity of this kind, a quota under every key, too high to
    throttle.
    """
    limits = "".join(f"{key} = {NEVER_REACHED}\n" for key in CLIENT_KEYS)
    return "".join(f'[[quota]]\n{kind} = "{name}"\n{limits}' for name in entities)


def with_entities(count: int) -> Target:
    """Return the target of Weir with quotas for `count` client-ids; if `count` is 1, with one default quota
    for all client-ids.
    """
    file = quota_file(client_ids(count) if count > 1 else ["<default>"])
    name = f"weir-{count}"
    return Target(
        name, f"{count:,} {'entities' if count > 1 else 'entity'}", lambda s: start(s, name, THIS_TREE, file)
    )


def other_tree(tree: Path) -> Target:
    """Return the target of Weir from another checkout, with quotas, to compare two versions of the code in
    one run. It is missing where the checkout has no package `weir`: Python would import this one instead.
    """
    name = f"weir@{tree.name}"
    return Target(
        name,
        f"Weir, quotas on ({tree.name})",
        lambda s: start(s, name, tree, quota_file()),
        missing=lambda: None if (tree / "weir" / "__init__.py").exists() else f"no package weir in {tree}",
    )


WEIR: Final = Target("weir", "Weir, quotas on", lambda s: start(s, "weir", THIS_TREE, quota_file()))
WEIR_WORKERS: Final = Target(
    "weir-workers",
    "Weir, quotas on, two workers",
    lambda s: start(s, "weir-workers", THIS_TREE, quota_file(), "--set", "workers=2"),
)
WEIR_WITHOUT_QUOTAS: Final = Target(
    "weir-no-quotas",
    "Weir, no quotas",
    lambda s: start(s, "weir-no-quotas", THIS_TREE, None),
)
