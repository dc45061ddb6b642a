"""`weir quotas`: show quotas, and change them in their store."""

from __future__ import annotations

from typing import Final

import click

from weir.cli.lazy import LazyCommand, LazyCommands

COMMANDS: Final = {
    "delete": LazyCommand("weir.cli.quotas.change:delete", "Delete quotas of an entity, or all of them."),
    "explain": LazyCommand(
        "weir.cli.quotas.explain:explain", "Tell which quota applies to a client, and why."
    ),
    "import": LazyCommand(
        "weir.cli.quotas.imports:import_", "Import quotas from ZooKeeper, brokers or a file."
    ),
    "list": LazyCommand(
        "weir.cli.quotas.listed:list_", "List or compare quotas, and the replication throttles."
    ),
    "set": LazyCommand("weir.cli.quotas.change:set_", "Set quotas of an entity; its other quotas stay."),
}
EXAMPLES: Final = """\b
Examples:
  weir quotas list --quotas quotas.toml
  weir quotas list --config weir.toml --user alice
  weir quotas set --config weir.toml --user alice --client-id app producer_byte_rate=2MiB
  weir quotas delete --config weir.toml --user alice --client-id app producer_byte_rate
  weir quotas explain --config weir.toml --user alice --client-id app
  weir quotas list --quotas recommended.toml --diff quotas.toml
  weir quotas import --zookeeper zk-1:2181/kafka --output quotas.toml
"""


@click.group(commands=LazyCommands(COMMANDS), epilog=EXAMPLES)
def quotas() -> None:
    """Show quotas, explain them, change them, import them.

    The quotas are those of a quota file (--quotas), or those that a Weir with this configuration (--config)
    uses, wherever they are stored. Exit codes: 0 done; 1 no such quota, or files that differ; 2 wrong usage
    or configuration, or a store that cannot be reached; 3 imported, except for the quotas listed as skipped.
    """
