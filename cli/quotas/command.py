"""`weir quotas`: show quotas, and change them in their store."""

from __future__ import annotations

from typing import Final

import click
import msgspec

from weir.cli.exits import NothingThereError
from weir.cli.quotas.change import delete, set_
from weir.cli.quotas.diff import diff
from weir.cli.quotas.entity import entity_options
from weir.cli.quotas.explain import explain
from weir.cli.quotas.imports import import_
from weir.cli.quotas.show import Entry, clean, echo_json, entries, show_table
from weir.cli.quotas.show_replication import ReplicationJson, replication_json, show_replication
from weir.cli.quotas.source import Source, json_option, source_options
from weir.quotas import Entity, QuotaTable

EXAMPLES: Final = """\b
Examples:
  weir quotas list --quotas quotas.toml
  weir quotas describe --config weir.toml --user alice
  weir quotas set --config weir.toml --user alice --client-id app producer_byte_rate=2MiB
  weir quotas delete --config weir.toml --user alice --client-id app producer_byte_rate
  weir quotas explain --config weir.toml --user alice --client-id app
  weir quotas diff quotas.toml recommended.toml
  weir quotas import zookeeper --zookeeper zk-1:2181/kafka --output quotas.toml
"""


class Listed(msgspec.Struct, omit_defaults=True):
    """The JSON object that `weir quotas list --json` and `describe --json` print."""

    source: str
    quotas: list[Entry]
    replication: list[ReplicationJson] = []
    """Replication throttles; an empty list is left out."""


@click.group(epilog=EXAMPLES)
def quotas() -> None:
    """Show quotas, explain them, change them, import them.

    The quotas are those of a quota file (--quotas), or those that a Weir with this configuration (--config)
    uses, wherever they are stored. Exit codes: 0 done; 1 no such quota, or files that differ; 2 wrong usage
    or configuration, or a store that cannot be reached; 3 imported, except for the quotas listed as skipped.
    """


@click.command(
    "list",
    epilog="""\b
Examples:
  weir quotas list --quotas quotas.toml
  weir quotas list --config weir.toml --json > quotas.json    # weir quotas import file reads it back
  weir quotas list --config weir.toml --json | jq '.quotas[] | select(.mode == "shadow")'
""",
)
@source_options
@json_option
def list_(source: Source, as_json: bool) -> None:
    """List every quota, and the replication throttles."""
    _show(source, source.load(), as_json)


@click.command(
    epilog="""\b
Examples:
  weir quotas describe --quotas quotas.toml --user alice
  weir quotas describe --quotas quotas.toml --user alice --default-client-id
"""
)
@source_options
@entity_options
@json_option
def describe(source: Source, entity: Entity, as_json: bool) -> None:
    """Show the quotas of exactly this entity; exit code 1 if it has none."""
    whole = source.load()
    enforced = {quota: value for quota, value in whole.values.items() if quota[0] == entity}
    shadow = {quota: value for quota, value in whole.shadow.items() if quota[0] == entity}
    table = QuotaTable(enforced, shadow, whole.options(), whole.options(shadow=True))
    if not len(table) and not as_json:
        raise NothingThereError(
            f"{clean(entity)} has no quota in {source.name}; what applies to a client: weir quotas explain"
        )
    _show(source, table, as_json)
    if not len(table):
        click.get_current_context().exit(NothingThereError.exit_code)


def _show(source: Source, table: QuotaTable, as_json: bool) -> None:
    if as_json:
        echo_json(Listed(source.name, list(entries(table)), replication_json(table.replication)))
    elif len(table):
        _show_tables(table)
    else:
        click.echo(f"no quotas in {source.name}", err=True)
    source.warn()


def _show_tables(table: QuotaTable) -> None:
    if table.values or table.shadow:
        show_table(table)
        if len(table.replication):
            click.echo()
    if len(table.replication):
        show_replication(table.replication)


for command in (list_, describe, set_, delete, explain, diff, import_):
    quotas.add_command(command)

# As in cli.main: a longer first sentence would be cut off.
describe.short_help = "Show the quotas of exactly one entity."
explain.short_help = "Tell which quota applies to a client, and why."
delete.short_help = "Delete quotas of an entity, or all of them."
import_.short_help = "Import quotas from ZooKeeper, brokers or a file."
