"""`weir quotas list`: the quotas, or their changes from those of a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click
import msgspec

from weir.cli.exits import NothingThereError
from weir.cli.quotas.admin_source import AdminSource, store_options
from weir.cli.quotas.diff import show_differences
from weir.cli.quotas.entity import entity_options
from weir.cli.quotas.show import EntryJson, clean, echo_json, entries, show_table
from weir.cli.quotas.show_groups import GroupJson, groups_json, show_groups
from weir.cli.quotas.show_replication import ReplicationJson, replication_json, show_replication
from weir.cli.quotas.source import QuotaSource, json_option
from weir.quotas import Entity, QuotaTable


class Listed(msgspec.Struct, omit_defaults=True):
    """The JSON object that `weir quotas list --json` prints."""

    source: str
    quotas: list[EntryJson]
    replication: list[ReplicationJson] = []
    """Replication throttles; an empty list is left out."""
    groups: list[GroupJson] = []
    """Groups with their members; an empty list is left out."""


@click.command(
    "list",
    epilog="""\b
Examples:
  weir quotas list --quotas quotas.toml
  weir quotas list --config weir.toml --json > quotas.json    # weir quotas import reads it back
  weir quotas list --admin weir-1:9644 --admin-token-file token    # of a running Weir
  weir quotas list --quotas quotas.toml --user alice --client-id '<default>'
  weir quotas list --quotas recommended.toml --diff quotas.toml
  weir quotas list --config weir.toml --json | jq '.quotas[] | select(.mode == "shadow")'
""",
)
@store_options
@partial(entity_options, needed=False)
@click.option(
    "--diff",
    "old",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="List what differs from this quota file, or output of --json; exit code 1 if anything does.",
)
@json_option
def list_(source: QuotaSource, entity: Entity | None, old: Path | None, as_json: bool) -> None:
    """List every quota and the groups; without --admin also the replication throttles. Or list one entity's.

    Exit code 1 if the entity has none.
    """
    table = source.load()
    if old is not None:
        if entity is not None:
            raise click.UsageError("--diff compares all quotas: leave out the entity")
        if isinstance(source, AdminSource):
            raise click.UsageError("--diff compares throttles, which --admin does not list: give --config")
        show_differences(old, source.name, table, as_json=as_json)
        return
    if entity is not None:
        table = _of_entity(table, entity)
    if entity is not None and not len(table) and not as_json:
        raise NothingThereError(
            f"{clean(entity)} has no quota in {source.name}; what applies to a client: weir quotas explain"
        )
    _show(source, table, as_json)
    if entity is not None and not len(table):
        click.get_current_context().exit(NothingThereError.exit_code)


def _of_entity(whole: QuotaTable, entity: Entity) -> QuotaTable:
    enforced = {quota: value for quota, value in whole.values.items() if quota[0] == entity}
    shadow = {quota: value for quota, value in whole.shadow.items() if quota[0] == entity}
    return QuotaTable(enforced, shadow, whole.options(), whole.options(shadow=True))


def _show(source: QuotaSource, table: QuotaTable, as_json: bool) -> None:
    if as_json:
        listed = Listed(source.name, list(entries(table)), replication_json(table.replication))
        listed.groups = groups_json(table.groups)
        echo_json(listed)
    elif len(table) or table.groups.parents:
        _show_tables(table)
    else:
        click.echo(f"no quotas in {source.name}", err=True)
    source.warn()


def _show_tables(table: QuotaTable) -> None:
    has_quotas = bool(table.values or table.shadow)
    if has_quotas:
        show_table(table)
    if table.groups.parents:
        click.echo("\n" * has_quotas, nl=False)
        show_groups(table.groups)
    if len(table.replication):
        click.echo("\n" * bool(has_quotas or table.groups.parents), nl=False)
        show_replication(table.replication)
