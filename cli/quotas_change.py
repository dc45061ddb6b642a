"""`weir quotas set` and `weir quotas delete`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import click
import msgspec

from cli.exits import NothingThereError
from cli.quotas_entity import RATES_HELP, check_user, entity_options, parse_assignments, parse_key
from cli.quotas_show import (
    ENFORCED,
    SHADOW,
    Change,
    ChangeEntry,
    change_entry,
    clean,
    compare,
    echo_json,
    show_changes,
)
from cli.quotas_source import Source, json_option, source_options
from quotas import Entity, QuotaFileError, QuotaKey, QuotaTable, render
from quotas.table import Quota

shadow_option = click.option(
    "--shadow", is_flag=True, help="Shadow entries: computed and counted, without delaying requests."
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show the changes, for a file also as a diff, without making them."
)


class Changed(msgspec.Struct):
    """The JSON object of `--json`."""

    source: str
    dry_run: bool
    changes: list[ChangeEntry]
    """All requested changes, even if before equals after."""


@click.command(
    "set",
    epilog=f"""\b
Examples:
  weir quotas set --quotas quotas.toml --user alice producer_byte_rate=1048576 consumer_byte_rate=2MiB
  weir quotas set --config weir.toml --default-user --default-client-id producer_byte_rate=500K
  weir quotas set --config weir.toml --client-id-prefix etl- --shadow consumer_byte_rate=10M --dry-run

{RATES_HELP}
""",
)
@click.argument("values", nargs=-1, required=True, metavar="KEY=VALUE...")
@source_options
@entity_options
@shadow_option
@dry_run_option
@json_option
def set_(
    source: Source, entity: Entity, values: tuple[str, ...], shadow: bool, dry_run: bool, as_json: bool
) -> None:
    """Set quotas of an entity; its other quotas stay."""
    check_user(entity.user)
    rates = parse_assignments(values)
    wanted = {(entity, key): rate for key, rate in rates.items()}
    try:
        render(QuotaTable(None, wanted) if shadow else QuotaTable(wanted))
    except (QuotaFileError, ValueError) as error:
        raise click.UsageError(clean(error)) from None
    outcome = change(source, source.load(), wanted, shadow=shadow, dry_run=dry_run)
    _tell(source, outcome, as_json=as_json)


@click.command(
    epilog="""\b
Examples:
  weir quotas delete --quotas quotas.toml --user alice producer_byte_rate
  weir quotas delete --quotas quotas.toml --user alice --client-id app
"""
)
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@source_options
@entity_options
@shadow_option
@dry_run_option
@json_option
def delete(
    source: Source, entity: Entity, keys: tuple[str, ...], shadow: bool, dry_run: bool, as_json: bool
) -> None:
    """Delete quotas of an entity; all of them if no key is given. Exit code 1 if the entity has none."""
    chosen = [parse_key(key) for key in keys]
    table = source.load()
    there = table.shadow if shadow else table.values
    wanted: dict[Quota, float | None] = {
        quota: None for quota in there if quota[0] == entity and (not chosen or quota[1] in chosen)
    }
    if not wanted:
        what = "quota" if not chosen else " or ".join(key.value for key in chosen)
        raise NothingThereError(
            f"{clean(entity)} has no {SHADOW + ' ' if shadow else ''}{what} in {source.name}"
        )
    outcome = change(source, table, wanted, shadow=shadow, dry_run=dry_run)
    _tell(source, outcome, as_json=as_json)


class Outcome(NamedTuple):
    """The changes that a command made, or would make."""

    changes: list[Change]
    """All requested changes, even if before equals after."""
    diff: str
    """Diff of the file, if it was not changed; "" otherwise, and for other stores."""
    dry_run: bool

    @property
    def is_change(self) -> bool:
        """True if any value differs."""
        return any(one.before != one.after for one in self.changes)


def change(
    source: Source,
    table: QuotaTable,
    wanted: Mapping[tuple[Entity, QuotaKey], float | None],
    *,
    shadow: bool,
    dry_run: bool,
) -> Outcome:
    """Set these values in a store that holds `table`. Raises CommandError."""
    there = table.shadow if shadow else table.values
    changes = compare(there, wanted, SHADOW if shadow else ENFORCED)
    differing = {(one.entity, one.key): one.after for one in changes if one.before != one.after}
    if not differing:
        return Outcome(changes, "", dry_run)
    if dry_run:
        return Outcome(changes, source.diff(differing, shadow=shadow), dry_run)
    source.alter(differing, shadow=shadow)
    return Outcome(changes, "", dry_run)


def show(source: Source, outcome: Outcome) -> None:
    """Print the changes, and on stderr their effect."""
    show_changes(outcome.changes)
    if outcome.diff:
        click.echo(f"\n{outcome.diff}", nl=False)
    if not outcome.is_change:
        click.echo(f"nothing to change in {source.name}", err=True)
    elif outcome.dry_run:
        click.echo(f"nothing was changed in {source.name}: --dry-run", err=True)
    else:
        click.echo(f"changed {source.name}: {source.takes_effect}", err=True)


def _tell(source: Source, outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        changes = [change_entry(one) for one in outcome.changes]
        echo_json(Changed(source.name, outcome.dry_run, changes))
    else:
        show(source, outcome)
