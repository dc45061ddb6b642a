"""`weir quotas set` and `weir quotas delete`: change the quotas of an entity."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import click
import msgspec

from weir.cli.exits import CommandError, NothingThereError
from weir.cli.quotas.admin_source import store_options
from weir.cli.quotas.entity import RATES_HELP, check_user, entity_options, parse_assignments, parse_key
from weir.cli.quotas.release import release_alone, show_released, waits_of
from weir.cli.quotas.show import (
    ENFORCED,
    SHADOW,
    ChangeEntry,
    QuotaEdit,
    change_entry,
    clean,
    compare,
    echo_json,
    show_changes,
)
from weir.cli.quotas.source import QuotaSource, json_option
from weir.proxy.control.snapshots.records import Released
from weir.quotas import Entity, QuotaFileError, QuotaKey, QuotaTable, render
from weir.quotas.table.ends import check_new_end
from weir.quotas.table.group_entry import check_floors, concerns_groups
from weir.quotas.table.options import DEFAULT_PACING, NEVER, PLAIN, Options, Pacing, Scope
from weir.quotas.table.quota_table import NO_BUDGETS, Quota, has_budgets
from weir.quotas.table.times import EXAMPLE, later, now_utc, read_time, written_time
from weir.quotas.units import parse

shadow_option = click.option(
    "--shadow", is_flag=True, help="Shadow entries: computed and counted, without delaying requests."
)
pacing_option = click.option(
    "--pacing",
    type=click.Choice([DEFAULT_PACING, *(pacing.value for pacing in Pacing)]),
    help="How the entry's byte rates are held; default: as quota_pacing says. [default: as it is]",
)
scope_option = click.option(
    "--scope",
    type=click.Choice([scope.value for scope in Scope]),
    help="One budget for each broker, or one for all of them. [default: as it is]",
)
for_option = click.option(
    "--for",
    "duration",
    metavar="DURATION",
    help="The entry, with all its values, ends after this time, such as 90m or 4h.",
)
until_option = click.option(
    "--until",
    metavar="TIME",
    help=f"The entry ends at this time, such as {EXAMPLE}; never: it has no end. [default: as it is]",
)
release_option = click.option(
    "--release",
    is_flag=True,
    help="End waits that the connections of the user, client-id or group have begun; with --admin.",
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show the changes, for a file also as a diff, without making them."
)


class Changed(msgspec.Struct, omit_defaults=True):
    """JSON object that `weir quotas set --json` and `weir quotas delete --json` print: the quotas before and
    after the command.
    """

    source: str
    dry_run: bool
    changes: list[ChangeEntry]
    """One value before and after for each quota that the command names, also if the value stays the same."""
    pacing: str | None = None
    """New pacing of the changed entry: kafka, smooth, or default (the setting quota_pacing). Left out if the
    command changes no option.
    """
    scope: str | None = None
    """New scope of the changed entry, broker or cluster; left out like the pacing."""
    until: datetime | None = None
    """End of the changed entry, also if it is as before; left out for no end."""
    released: Released | None = None
    """Connections whose waits were ended; left out without --release."""


@click.command(
    "set",
    epilog=f"""\b
Examples:
  weir quotas set --quotas quotas.toml --user alice producer_byte_rate=1048576 consumer_byte_rate=2MiB
  weir quotas set --config weir.toml --user '<default>' --client-id '<default>' producer_byte_rate=500K
  weir quotas set --config weir.toml --client-id-prefix etl- --shadow consumer_byte_rate=10M --dry-run
  weir quotas set --quotas quotas.toml --user alice --pacing smooth --scope cluster producer_byte_rate=10M
  weir quotas set --admin weir-1:9644 --admin-token-file token --user alice producer_byte_rate=20M --release
  weir quotas set --quotas quotas.toml --user alice --client-id backfill --for 4h consumer_byte_rate=100MB

{RATES_HELP}
""",
)
@click.argument("values", nargs=-1, metavar="KEY=VALUE...")
@store_options
@entity_options
@shadow_option
@pacing_option
@scope_option
@for_option
@until_option
@release_option
@dry_run_option
@json_option
def set_(
    source: QuotaSource,
    entity: Entity,
    values: tuple[str, ...],
    shadow: bool,
    pacing: str | None,
    scope: str | None,
    duration: str | None,
    until: str | None,
    release: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set quotas of an entity; its other quotas stay. A quota file that is missing is created.

    A raised quota does not shorten throttle times that began before; --release ends them, as far as the
    present quotas allow, also without KEY=VALUE. Exit code 1 if it alone finds no connection that waits.
    """
    check_user(entity.user)
    waits = waits_of(source, entity, dry_run=dry_run) if release else None
    if not values:
        if waits is None or shadow or any((pacing, scope, duration, until)):
            raise click.UsageError("Missing argument 'KEY=VALUE...'.", click.get_current_context())
        release_alone(waits, as_json=as_json)
        return
    if not has_budgets(entity) and (pacing is not None or scope is not None):
        raise click.UsageError(NO_BUDGETS)
    rates = parse_assignments(values)
    now = now_utc()
    end = _end(duration, until, now)
    wanted: dict[Quota, float | None] = {(entity, key): rate for key, rate in rates.items()}
    try:
        render(QuotaTable().altered(wanted, shadow=shadow))
    except (QuotaFileError, ValueError) as error:
        raise click.UsageError(clean(error)) from None
    table = source.load_for_change()
    ended = ended_values(table, entity, now, shadow=shadow)
    wanted = {**ended, **wanted}
    options = PLAIN if ended else table.options_of(entity, shadow=shadow)
    sets_options = bool(ended) or any(option is not None for option in (pacing, scope, end))
    new = options.replaced(pacing, scope, end) if sets_options else None
    try:
        check_new_end(table, wanted, new or options, shadow=shadow)
    except QuotaFileError as error:
        raise click.UsageError(clean(error)) from None
    outcome = change(source, table, wanted, shadow=shadow, dry_run=dry_run, options=new)
    if outcome.options is None:
        outcome = outcome._replace(kept_until=options.until)
    _tell(source, outcome, None if waits is None else waits.end(), as_json=as_json)


def ended_values(table: QuotaTable, entity: Entity, now: datetime, *, shadow: bool) -> dict[Quota, None]:
    """Return None for each value of an entry that has ended, because no new value may revive them; nothing
    if the entry has not ended.
    """
    until = table.options_of(entity, shadow=shadow).until
    has_ended = until is not None and until <= now
    return dict.fromkeys((entity, key) for key in table.rates_of(entity, shadow=shadow) if has_ended)


def _end(duration: str | None, until: str | None, now: datetime) -> str | None:
    """Return the end that the command line gives; None if it gives none. Raises click.UsageError."""
    try:
        if duration is not None:
            if until is not None:
                raise click.UsageError("either --for or --until")
            end = now.replace(microsecond=0) + timedelta(seconds=parse(duration, "s"))
            return written_time(later(end, now))
        return until if until in (None, NEVER) else written_time(later(read_time(until), now))
    except OverflowError:
        raise click.UsageError(f"--for is {duration!r}, must be a time before the year 10000") from None
    except ValueError as error:
        given = f"--until is {until!r}" if duration is None else f"--for is {duration!r}"
        raise click.UsageError(f"{given}, must be {error}") from None


@click.command(
    epilog="""\b
Examples:
  weir quotas delete --quotas quotas.toml --user alice producer_byte_rate
  weir quotas delete --quotas quotas.toml --user alice --client-id app
"""
)
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@store_options
@entity_options
@shadow_option
@dry_run_option
@json_option
def delete(
    source: QuotaSource, entity: Entity, keys: tuple[str, ...], shadow: bool, dry_run: bool, as_json: bool
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
    _tell(source, outcome, None, as_json=as_json)


class QuotaEdits(NamedTuple):
    """The changes that a command made, or with --dry-run would make."""

    changes: list[QuotaEdit]
    """One value before and after for each quota that the command names, also if the value stays the same."""
    diff: str
    """Unified diff of the quota file under --dry-run; "" without --dry-run, and if the quotas are stored in
    the cluster.
    """
    dry_run: bool
    options: Options | None = None
    """New options of the entries; None if the entries keep their options."""

    sets_options: bool = False
    """True if the entries get options that they did not have."""

    kept_until: datetime | None = None
    """End of the entry, which the command does not change. A value that is added to an ending entry ends,
    too. That may surprise the operator, so the command says it.
    """

    @property
    def is_change(self) -> bool:
        """True if any value or option changes."""
        return self.sets_options or any(one.before != one.after for one in self.changes)

    def joined(self, other: QuotaEdits) -> QuotaEdits:
        """Return one outcome with the changes of this and the other outcome. Its `options` is None, because
        the two may set different options.
        """
        return QuotaEdits(
            self.changes + other.changes,
            self.diff + other.diff,
            self.dry_run,
            sets_options=self.sets_options or other.sets_options,
        )


def change(
    source: QuotaSource,
    table: QuotaTable,
    wanted: Mapping[tuple[Entity, QuotaKey], float | None],
    *,
    shadow: bool,
    dry_run: bool,
    options: Options | None = None,
) -> QuotaEdits:
    """Set the quotas in `wanted` to their values, and remove those whose value is None. `table` has the
    quotas that the store holds now. The changed entries get `options`, or keep theirs if `options` is None.
    With `dry_run` the store stays unchanged. Return the changes. Raises CommandError.
    """
    there = table.shadow if shadow else table.values
    changes = compare(there, wanted, SHADOW if shadow else ENFORCED)
    if all(table.options_of(entity, shadow=shadow) == options for entity, _key in wanted):
        options = None
    differing = {
        (one.entity, one.key): one.after for one in changes if one.before != one.after or options is not None
    }
    if not differing:
        return QuotaEdits(changes, "", dry_run)
    if dry_run:
        if concerns_groups(differing):
            try:
                check_floors(table.altered(differing, shadow=shadow, options=options))
            except QuotaFileError as error:
                raise CommandError(clean(error)) from None
        diff = source.diff(differing, shadow=shadow, options=options)
        return QuotaEdits(changes, diff, dry_run, options, options is not None)
    source.alter(differing, shadow=shadow, options=options)
    return QuotaEdits(changes, "", dry_run, options, options is not None)


def show(source: QuotaSource, outcome: QuotaEdits) -> None:
    """Print the changes, and on stderr a line that says when a running Weir applies the changes."""
    show_changes(outcome.changes)
    if outcome.options is not None:
        pacing, scope, until = outcome.options
        ends = "" if until is None else f", until {written_time(until)}"
        click.echo(f"pacing {DEFAULT_PACING if pacing is None else pacing.value}, scope {scope.value}{ends}")
    if outcome.kept_until is not None:
        click.echo(f"ends at {written_time(outcome.kept_until)}, as before; --until never: it does not end")
    if outcome.diff:
        click.echo(f"\n{outcome.diff}", nl=False)
    if not outcome.is_change:
        click.echo(f"nothing to change in {source.name}", err=True)
    elif outcome.dry_run:
        click.echo(f"nothing was changed in {source.name}: --dry-run", err=True)
    else:
        click.echo(f"changed {source.name}: {source.takes_effect}", err=True)


def _tell(source: QuotaSource, outcome: QuotaEdits, released: Released | None, *, as_json: bool) -> None:
    if as_json:
        changes = [change_entry(one) for one in outcome.changes]
        changed = Changed(source.name, outcome.dry_run, changes, until=outcome.kept_until, released=released)
        if outcome.options is not None:
            pacing, scope, changed.until = outcome.options
            changed.pacing = DEFAULT_PACING if pacing is None else pacing.value
            changed.scope = scope.value
        echo_json(changed)
        return
    show(source, outcome)
    if released is not None:
        show_released(released)
