"""The quotas that the `weir quotas` commands use: a quota file, or the store of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import unified_diff
from functools import partial, wraps
from pathlib import Path
from typing import Final, Protocol, TypeVar

import click
import trio

from weir.cli.exits import CommandError
from weir.cli.output_file import write
from weir.cli.progress import Progress
from weir.cli.quotas.show import clean
from weir.cli.settings.options import ENVIRONMENT_PREFIX, config_file_option
from weir.proxy.config import config
from weir.proxy.config.settings import store_of
from weir.proxy.control.stores.broker import BrokerStore, broker_store
from weir.proxy.control.stores.file import read_quota_file, rewrite, rewrite_replication
from weir.proxy.control.stores.store import StoreError
from weir.proxy.control.stores.topic import TopicStore, topic_store
from weir.proxy.files import QUOTAS_BYTES_MAX, read_text
from weir.proxy.handlers.quota_api.quota_admin import ReplicationChanges
from weir.quotas import QuotaFileError, QuotaTable
from weir.quotas.table.group_entry import GroupEntry
from weir.quotas.table.options import Options
from weir.quotas.table.quota_edit import edited
from weir.quotas.table.quota_file import read
from weir.quotas.table.quota_table import Quota

F = TypeVar("F", bound=Callable[..., object])

quotas_option: Final = click.option(
    "--quotas",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar=f"{ENVIRONMENT_PREFIX}QUOTAS",
    help="A quota file.",
)
config_option: Final = config_file_option("Weir's configuration, whose quota store is used.")
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class QuotaSource(Protocol):
    """A place where quotas are stored: a quota file, or a store in the cluster."""

    @property
    def name(self) -> str:
        """Name of the store for messages, such as `quotas.toml`."""

    @property
    def takes_effect(self) -> str:
        """Text that says when a running Weir applies a change."""

    @property
    def settings(self) -> config.Settings:
        """Settings of the configuration file; Weir's defaults if the command names no configuration file."""

    def warn(self) -> None:
        """Print a warning on stderr if the settings keep Weir from enforcing the quotas."""

    def load(self) -> QuotaTable:
        """Return all quotas of the store. Raises CommandError if it cannot be read."""

    def load_for_change(self) -> QuotaTable:
        """Return all quotas of the store; no quotas if the store is a file that does not exist, because
        `alter` will create the file. Raises CommandError.
        """

    def alter(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> None:
        """Set these quotas to the given values, and remove those whose value is None: in the shadow entries
        if `shadow`, else in the enforced ones. The changed entries get `options`, or keep theirs if `options`
        is None. Raises CommandError.
        """

    def alter_replication(self, changes: ReplicationChanges) -> None:
        """Set these replication throttles to the given values, and remove those whose value is None. Raises
        CommandError.
        """

    def diff(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> str:
        """Return the unified diff of the quota file that `alter` would make, without changing the file; ""
        for a store in the cluster. Raises CommandError.
        """


class StoredSource(QuotaSource, Protocol):
    """A `QuotaSource` that is a store. The admin endpoint of a running Weir is none: it changes no groups."""

    def alter_groups(self, groups: Sequence[GroupEntry], removed: Collection[str]) -> None:
        """Store these groups instead of those of the same names, without those `removed`; others stay. Raises
        CommandError, also if the store takes no groups from commands.
        """


def source_options(command: F) -> F:
    """Return the command with the options that name a store; it gets the `QuotaSource` as `source`."""

    @wraps(command)
    def with_source(*, quotas: Path | None, config_file: Path | None, **others: object) -> object:
        return command(source=open_source(quotas, config_file), **others)

    return quotas_option(config_option(with_source))  # type: ignore[return-value]  # with other parameters


def open_source(quotas: Path | None, config_file: Path | None) -> StoredSource:
    """Return the store that the options name. Raises CommandError, click.UsageError."""
    if config_file is None:
        if quotas is None:
            raise click.UsageError("which quotas? give --quotas FILE, or --config weir.toml")
        if store_of(str(quotas)) != "file":
            raise click.UsageError(f"--quotas {quotas} is in a cluster: give --config weir.toml")
        return FileSource(quotas, config.Settings())
    with _one_line():
        loaded = config.load(config_file, {"quotas": str(quotas) if quotas is not None else None})
        if loaded.settings.quota_store != "file":
            return ClusterSource(loaded)
        if loaded.quota_file is None:
            raise CommandError(f"{config_file}: it names no quota file: set quotas, or give --quotas FILE")
        return FileSource(loaded.quota_file, loaded.settings)


class ConfiguredSource:
    """Base class of sources: keeps the settings of the configuration, and prints
    warnings.
    """

    def __init__(self, settings: config.Settings) -> None:
        self.settings = settings

    def warn(self) -> None:
        """Print a warning on stderr if the settings enforce no quotas."""
        if self.settings.quota_mode == "shadow":
            click.echo("quota_mode is shadow: none of these is enforced, all are only counted", err=True)


class FileSource(ConfiguredSource):
    """A quota file that the commands read and edit directly; a running Weir rereads a changed file."""

    takes_effect: Final = "a running Weir follows it within two seconds"

    def __init__(self, path: Path, settings: config.Settings) -> None:
        super().__init__(settings)
        self._path = path

    @property
    def name(self) -> str:
        """Path of the quota file, as messages show it."""
        return clean(self._path)

    def load(self) -> QuotaTable:
        """Return the quotas in the file. Raises CommandError if the file cannot be read or parsed."""
        with _one_line(), Progress(f"reading {self.name}"):
            return read_quota_file(self._path)

    def load_for_change(self) -> QuotaTable:
        """Return the quotas in the file; none if there is no file yet. Raises CommandError if the file cannot
        be read or parsed.
        """
        return self.load() if self._path.exists() else QuotaTable()

    def alter(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> None:
        """Make the changes in the quota file, and replace the file atomically; keep the operator's comments
        and order where possible. Create a missing file. Raises CommandError if the file cannot be changed.
        """
        self._create()
        with _one_line(), Progress(f"writing {self.name}"):
            rewrite(self._path, changes, shadow=shadow, options=options)

    def alter_replication(self, changes: ReplicationChanges) -> None:
        """Make the changes of replication throttles in the quota file, like `alter`. Raises CommandError."""
        self._create()
        with _one_line(), Progress(f"writing {self.name}"):
            rewrite_replication(self._path, changes)

    def alter_groups(self, groups: Sequence[GroupEntry], removed: Collection[str]) -> None:  # noqa: ARG002  # of the protocol
        """Refuse: an operator who keeps a file writes groups there, with comments."""
        names = ", ".join(group.name for group in groups)
        raise CommandError(f"{self.name}: not changed: write [[group]] of {clean(names)} into it first")

    def _create(self) -> None:
        if not self._path.exists():
            write(self._path, "", force=False)
            click.echo(f"created {self.name}", err=True)

    def diff(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> str:
        """Return the unified diff between the quota file and the text that `alter` would write for these
        changes; the file stays as it was. Raises CommandError if the file cannot be read or changed.
        """
        with _one_line():
            before = read_text(self._path, QUOTAS_BYTES_MAX) if self._path.exists() else ""
            after = edited(before, changes, shadow=shadow, options=options)
            read(after)  # raises for mistakes that lie in several entries, as alter does
        was, becomes = (text.splitlines(keepends=True) for text in (before, after))
        return "".join(unified_diff(was, becomes, self.name, self.name))


class ClusterSource(ConfiguredSource):
    """A store in the cluster: a topic, or the brokers themselves."""

    def __init__(self, loaded: config.Config) -> None:
        """Keep the configuration; the first method that needs the store connects. Raises ConfigError."""
        super().__init__(loaded.settings)
        self._store: TopicStore | BrokerStore
        if loaded.quota_topic:
            self._store, self._where = topic_store(loaded), loaded.quota_topic
        else:
            self._store, self._where = broker_store(loaded), loaded.settings.upstream

    @property
    def name(self) -> str:
        """Name of the store for messages, such as `topic __weir_quotas`."""
        return clean(f"{self._store.name} {self._where}")

    @property
    def takes_effect(self) -> str:
        """Text that says when a Weir that runs with this store applies a change."""
        return "a running Weir follows it within a second or two"

    def load(self) -> QuotaTable:
        """Return all quotas of the store. Raises CommandError if the store cannot be read."""
        with _one_line(), Progress(f"reading {self.name}"):
            return trio.run(self._store.load)

    def load_for_change(self) -> QuotaTable:
        """Return all quotas of the store. Raises CommandError if the store cannot be read."""
        return self.load()

    def alter(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> None:
        """Change the quotas in the store. Raises CommandError if the store refuses, or cannot hold shadow
        entries or options.
        """
        with _one_line(), Progress(f"changing {self.name}"):
            trio.run(partial(self._store.alter, changes, shadow=shadow, options=options))

    def alter_replication(self, changes: ReplicationChanges) -> None:
        """Change the replication throttles in the store. Raises CommandError if the store refuses."""
        with _one_line(), Progress(f"changing {self.name}"):
            trio.run(self._store.alter_replication, changes)

    def alter_groups(self, groups: Sequence[GroupEntry], removed: Collection[str]) -> None:
        """Store the groups. Raises CommandError if the store refuses, or is the brokers."""
        if not isinstance(self._store, TopicStore):
            raise CommandError("brokers cannot store groups: they are Weir's own")
        with _one_line(), Progress(f"changing {self.name}"):
            trio.run(self._store.alter_groups, groups, removed)

    def diff(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> str:
        """Return the empty string, because quotas in a cluster are no text that could be compared."""
        del changes, shadow, options
        return ""


@contextmanager
def _one_line() -> Iterator[None]:
    """During the block, turn exceptions of the quota store into a CommandError with a message of one line."""
    try:
        yield
    except (config.ConfigError, StoreError, QuotaFileError, UnicodeDecodeError) as error:
        raise CommandError(clean(error)) from None
    except OSError as error:
        raise CommandError(clean(f"{error.filename}: {error.strerror}")) from None
