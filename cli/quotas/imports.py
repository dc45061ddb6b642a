"""`weir quotas import`: write quotas from ZooKeeper, brokers or files to a quota file or a store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import click
import msgspec
import trio
from click.core import ParameterSource

from weir.cli.exits import DONE, INCOMPLETE, CommandError
from weir.cli.output_file import write
from weir.cli.progress import Progress
from weir.cli.quantity import Quantity
from weir.cli.quotas import read_back
from weir.cli.quotas.broker import read as read_broker
from weir.cli.quotas.change import QuotaEdits, show
from weir.cli.quotas.import_groups import group_edits
from weir.cli.quotas.import_steps import apply, import_steps
from weir.cli.quotas.show import ChangeEntry, EntryJson, change_entry, clean, echo_json, entries
from weir.cli.quotas.show_groups import GroupJson, groups_json
from weir.cli.quotas.show_replication import (
    ReplicationChange,
    ReplicationJson,
    replication_changes,
    replication_json,
    show_replication_changes,
)
from weir.cli.quotas.source import StoredSource, config_option, json_option, open_source, quotas_option
from weir.cli.quotas.zookeeper_dump import Dump, DumpError
from weir.cli.quotas.zookeeper_live import read as read_zookeeper
from weir.cli.settings.options import broker_options
from weir.proxy.config import config
from weir.proxy.control.cluster.connection import QuestionError
from weir.proxy.control.zookeeper import ZooKeeperAddress, ZooKeeperError
from weir.proxy.files import PASSWORD_BYTES_MAX, read_text
from weir.quotas import QuotaTable, render
from weir.quotas.replication.throttles import ReplicationThrottles
from weir.quotas.table.imported import Imported, Skipped
from weir.quotas.table.zookeeper_layout import ZooKeeperQuotas

F = TypeVar("F", bound=Callable[..., object])

LINES_SHOWN: Final = 50
"""Maximum number of skipped quotas listed on stderr; the file and --json list all."""


class SkippedEntry(msgspec.Struct):
    """JSON object for a quota that was not imported."""

    where: str
    key: str | None
    reason: str


class ImportReport(msgspec.Struct, omit_defaults=True):
    """The JSON object that `weir quotas import --json` prints."""

    origin: str
    quotas: list[EntryJson]
    skipped: list[SkippedEntry]
    nodes: int | None
    """Number of znodes read from ZooKeeper; null for an import from brokers."""
    credentials: int | None
    """Number of SCRAM credentials in the znodes read from ZooKeeper; null for an import from brokers."""
    output: str | None
    """Path of the file written by --output; null without --output."""
    dry_run: bool
    changes: list[ChangeEntry] | None
    """Changes made in the store by --apply; null without --apply."""
    replication: list[ReplicationJson] = []
    """Imported replication throttles; an empty list is left out."""
    replication_changes: list[ReplicationChange] = []
    """Changes of replication throttles made in the store by --apply; an empty list is left out."""
    groups: list[GroupJson] = []
    """Imported groups; an empty list is left out."""
    group_changes: list[str] = []
    """Changes of groups made in the store by --apply, as text; an empty list is left out."""


class ImportTarget(NamedTuple):
    """The destination of imported quotas: standard output, a file, or Weir's store."""

    output: Path | None
    force: bool
    apply: bool
    dry_run: bool
    shadow: bool
    as_json: bool
    quotas: Path | None
    config: Path | None

    def check(self) -> None:
        """Refuse options that contradict each other (UsageError). Without `--force`, refuse an output file
        that exists (CommandError). Call this before reading quotas.
        """
        if self.output is not None and self.apply:
            raise click.UsageError("either --output or --apply")
        if self.dry_run and not self.apply:
            raise click.UsageError("--dry-run goes with --apply: without it nothing is changed")
        source = click.get_current_context().get_parameter_source("quotas")
        if source is ParameterSource.COMMANDLINE and not self.apply:
            raise click.UsageError("--quotas goes with --apply; --output writes a new file")
        if self.output is not None and self.output.exists() and not self.force:
            raise CommandError(f"{self.output} exists already: choose another, or --force to replace it")

    def source(self) -> StoredSource | None:
        """Return the store that --apply changes; None without --apply. Raises CommandError."""
        return open_source(self.quotas, self.config) if self.apply else None


def target_options(command: F) -> F:
    """Return the command with the options of the destination; it gets their `ImportTarget` as argument
    `target`.
    """

    @wraps(command)
    def with_target(
        *,
        output: Path | None,
        force: bool,
        apply: bool,
        dry_run: bool,
        shadow: bool,
        as_json: bool,
        quotas: Path | None,
        config_file: Path | None,
        **others: object,
    ) -> object:
        target = ImportTarget(output, force, apply, dry_run, shadow, as_json, quotas, config_file)
        target.check()
        return command(target=target, **others)

    for option in reversed(_TARGET_OPTIONS):
        option(with_target)
    return with_target  # type: ignore[return-value]  # the same command, with other parameters


_TARGET_OPTIONS: Final = (
    click.option(
        "--output",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write a quota file. [default: to stdout]",
    ),
    click.option("--force", is_flag=True, help="Replace the file of --output."),
    click.option(
        "--apply",
        is_flag=True,
        help="Set them in the store of --config or --quotas; other quotas stay.",
    ),
    click.option("--dry-run", is_flag=True, help="With --apply: show the changes without making them."),
    click.option(
        "--shadow",
        is_flag=True,
        help="Import as shadow entries: counted, without delaying requests.",
    ),
    quotas_option,
    config_option,
    json_option,
)


@click.command(
    "import",
    epilog="""\b
Examples:
  weir quotas import --zookeeper zk-1:2181,zk-2:2181/kafka --output quotas.toml
  weir quotas import --zookeeper zk-1:2181 --zookeeper-digest digest.txt --config weir.toml --apply
  weir quotas import --dump /backup/zookeeper/kafka --json
  weir quotas import --upstream kafka-1:9092 --output quotas.toml
  weir quotas import --config weir.toml --apply --dry-run     # from the brokers of weir.toml
  weir quotas list --config old.toml --json > quotas.json
  weir quotas import quotas.json --output new.toml

\b
A dump directory has, for the znode /config/users/alice, one of
  DIR/config/users/alice            a file with what it holds
  DIR/config/users/alice.json       the same, if all files of the dump are called so
  DIR/config/users/alice/_znode     (or .../data) for one with children, which stand beside it
""",
)
@click.argument("path", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@broker_options("A broker to ask, from 2.6 on. [default: those of --config, as Weir's own user]")
@click.option(
    "--zookeeper",
    "connect",
    metavar="HOST:PORT[,...][/CHROOT]",
    help="A running ZooKeeper, as in Kafka's zookeeper.connect.",
)
@click.option("--dump", metavar="DIR", type=click.Path(path_type=Path), help="A dump of ZooKeeper's nodes.")
@click.option(
    "--zookeeper-digest",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File with USER:PASSWORD of ZooKeeper's digest scheme, if its ACLs require one.",
)
@click.option(
    "--timeout-s",
    type=Quantity("s", 0, above=True),
    default=10,
    show_default=True,
    help="Time limit for connecting to ZooKeeper, and for each answer.",
)
@target_options
def import_(
    target: ImportTarget,
    path: Path | None,
    connect: str | None,
    dump: Path | None,
    zookeeper_digest: Path | None,
    timeout_s: float,
    **broker: object,
) -> None:
    """Import quotas from a file, from brokers or from ZooKeeper, without changing these.

    FILE is the JSON of `weir quotas list`, or a quota file. Brokers from 2.6 on store quotas themselves; up
    to 3.9, ZooKeeper may have them. The result is a quota file (on stdout, or --output), or a change of
    the store that --config or --quotas names (--apply); a running Weir follows its store. Skipped quotas
    are listed, with reasons, on stderr, in the file and by --json; the exit code is 3 then.
    """
    asked = click.get_current_context().get_parameter_source("upstream") is ParameterSource.COMMANDLINE
    if asked + sum(each is not None for each in (path, connect, dump)) > 1:
        raise click.UsageError("one of FILE, --upstream, --zookeeper and --dump at a time")
    source = target.source()
    if connect is not None:
        place = ZooKeeperAddress(connect, _digest(zookeeper_digest), timeout_s)
        found, origin = _of_zookeeper(place), f"ZooKeeper at {connect}"
    elif dump is not None:
        found, origin = _of_dump(dump), str(dump)
    elif path is not None:
        found, origin = _of_file(path), str(path)
    else:
        found, origin = _of_brokers(target.config, broker)
    _deliver(found, origin, target, source)


def _of_zookeeper(place: ZooKeeperAddress) -> Imported:
    found = ZooKeeperQuotas()
    try:
        with Progress(f"connecting to {clean(place.connect)}") as progress:
            read_zookeeper(place, found, progress.say)
    except ZooKeeperError as error:
        raise CommandError(clean(error)) from None
    return found


def _of_dump(dump: Path) -> Imported:
    found = ZooKeeperQuotas()
    try:
        Dump(dump).read(found)
    except DumpError as error:
        raise CommandError(clean(error)) from None
    return found


def _of_file(path: Path) -> Imported:
    try:
        return read_back.read(path)
    except read_back.ReadBackError as error:
        raise CommandError(clean(error)) from None


def _of_brokers(config_file: Path | None, settings: Mapping[str, object]) -> tuple[Imported, str]:
    """Return the quotas of the brokers, and the name of the one that was asked. Raises CommandError."""
    try:
        loaded = config.load(config_file, settings)
        with Progress("asking for the brokers' quotas"):
            address, found = trio.run(read_broker, loaded)
    except (config.ConfigError, QuestionError) as error:
        raise CommandError(clean(error)) from None
    return found, f"broker {address}"


def _digest(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        text = read_text(file, PASSWORD_BYTES_MAX, pipes=True).strip()
    except OSError as error:
        raise CommandError(f"--zookeeper-digest {file}: cannot read it: {error.strerror}") from None
    if ":" not in text or "\n" in text:
        raise CommandError(f"--zookeeper-digest {file}: must hold USER:PASSWORD, and nothing else")
    return text


def _deliver(found: Imported, origin: str, target: ImportTarget, source: StoredSource | None) -> None:
    """Write the imported quotas to standard output, to a file or to Weir's store, as `target` says; print a
    summary, and exit.
    """
    table = found.table.in_shadow() if target.shadow else found.table
    states_options = isinstance(found, read_back.ReadBack)
    outcome: QuotaEdits | None = None
    groups: list[str] = []
    changes: list[ReplicationChange] = []
    if source is not None:
        stored = source.load_for_change()
        grouped = group_edits(stored, table)
        groups = grouped.changes
        # All steps are known before any is stored, because one of them may be refused.
        steps = list(import_steps(grouped.table, table, states_options=states_options))
        if not target.dry_run:
            grouped.store(source)
        outcome = apply(steps, source, dry_run=target.dry_run)
        changes = _apply_replication(stored.replication, table.replication, target, source)
    if target.output is not None:
        write(target.output, quota_file(table, found.skipped, origin), force=target.force)
    if target.as_json:
        report = _report(found, table, origin, target, outcome, changes)
        report.groups, report.group_changes = groups_json(table.groups), groups
        echo_json(report)
    elif source is not None and outcome is not None:
        click.echo("".join(f"{line}\n" for line in groups), nl=False)
        if outcome.changes or not (changes or groups):
            show(source, outcome)
        show_replication_changes(changes)
    elif target.output is None:
        click.echo(quota_file(table, found.skipped, origin), nl=False)
    for line in _summary(found, origin):
        click.echo(line, err=True)
    if target.output is not None:
        click.echo(f"written to {target.output}", err=True)
    sys.exit(INCOMPLETE if found.skipped else DONE)


def _apply_replication(
    before: ReplicationThrottles, wanted: ReplicationThrottles, target: ImportTarget, source: StoredSource
) -> list[ReplicationChange]:
    """Set the imported replication throttles in the store; return their values before and after."""
    if before.altered(wanted.values) != before and not target.dry_run:
        source.alter_replication(wanted.values)
    return replication_changes(before, wanted)


def quota_file(table: QuotaTable, skipped: list[Skipped], origin: str) -> str:
    """Return the text of a quota file, with comments that name its origin and the skipped quotas."""
    lines = [f"# Imported by `weir quotas import` from {clean(origin)}."]
    lines += [f"# Left out: {clean(one)}" for one in skipped]
    return "".join(f"{line}\n" for line in lines) + "\n" + render(table)


def _report(
    found: Imported,
    table: QuotaTable,
    origin: str,
    target: ImportTarget,
    outcome: QuotaEdits | None,
    changes: list[ReplicationChange],
) -> ImportReport:
    return ImportReport(
        origin,
        list(entries(table)),
        [SkippedEntry(*one) for one in found.skipped],
        found.nodes if isinstance(found, ZooKeeperQuotas) else None,
        found.credentials if isinstance(found, ZooKeeperQuotas) else None,
        str(target.output) if target.output is not None else None,
        target.dry_run,
        [change_entry(one) for one in outcome.changes] if outcome is not None else None,
        replication_json(table.replication),
        changes,
    )


def _summary(found: Imported, origin: str) -> Iterator[str]:
    skipped = found.skipped
    yield from (f"skipped {clean(one)}" for one in skipped[:LINES_SHOWN])
    if len(skipped) > LINES_SHOWN:
        yield f"skipped {len(skipped) - LINES_SHOWN} more: --json has all of them"
    table = found.table
    entities = len({entity for entity, _key in (*table.values, *table.shadow)})
    read = f"{found.nodes} nodes read, " if isinstance(found, ZooKeeperQuotas) else ""
    yield f"{clean(origin)}: {read}{len(table)} quotas of {entities} entities, {len(skipped)} skipped"
    if isinstance(found, ZooKeeperQuotas) and found.credentials:
        yield f"{found.credentials} SCRAM credentials are no quotas, and were left alone"
