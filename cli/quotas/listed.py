"""`weir quotas list` and `weir quotas describe`."""

from __future__ import annotations

import click
import msgspec

from weir.cli.exits import NothingThereError
from weir.cli.quotas.admin_source import store_options
from weir.cli.quotas.entity import entity_options
from weir.cli.quotas.show import EntryJson, clean, echo_json, entries, show_table
from weir.cli.quotas.show_replication import ReplicationJson, replication_json, show_replication
from weir.cli.quotas.source import QuotaSource, json_option
from weir.quotas import Entity, QuotaTable


class Listed(msgspec.Struct, omit_defaults=True):
    """The JSON object that `weir quotas list --json` and `describe --json` print."""

    source: str
    quotas: list[EntryJson]
    replication: list[ReplicationJson] = []
    """Replication throttles; an empty list is left out."""


@click.command(
    "list",
    epilog="""\b
Examples:
  weir quotas list --quotas quotas.toml
  weir quotas list --config weir.toml --json > quotas.json    # weir quotas import file reads it back
  weir quotas list --admin weir-1:9644 --token-file token    # of a running Weir
  weir quotas list --config weir.toml --json | jq '.quotas[] | select(.mode == "shadow")'
""",
)
@store_options
@json_option
def list_(source: QuotaSource, as_json: bool) -> None:
    """List every quota, and the replication throttles."""
    _show(source, source.load(), as_json)


@click.command(
    epilog="""\b
Examples:
  weir quotas describe --quotas quotas.toml --user alice
  weir quotas describe --quotas quotas.toml --user alice --client-id '<default>'
"""
)
@store_options
@entity_options
@json_option
def describe(source: QuotaSource, entity: Entity, as_json: bool) -> None:
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


def _show(source: QuotaSource, table: QuotaTable, as_json: bool) -> None:
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
