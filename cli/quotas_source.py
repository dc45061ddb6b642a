"""Which quotas the `weir quotas` commands are about: a quota file, or wherever a configuration keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import unified_diff
from functools import partial, wraps
from pathlib import Path
from typing import Final, Protocol, TypeVar

import click
import trio

from cli.exits import CommandError
from cli.progress import Progress
from cli.quotas_show import clean
from proxy.config import config
from proxy.control.stores.broker import broker_store
from proxy.control.stores.file import read_quota_file, rewrite
from proxy.control.stores.store import StoreError
from proxy.control.stores.topic import TopicStore, topic_store
from quotas import QuotaFileError, QuotaTable
from quotas.options import PLAIN, Options
from quotas.quota_edit import edited
from quotas.table import Quota

F = TypeVar("F", bound=Callable[..., object])

quotas_option: Final = click.option(
    "--quotas", metavar="FILE", type=click.Path(path_type=Path), help="A quota file."
)
config_option: Final = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Weir's configuration: the quotas that it names, wherever they are kept.",
)
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class Source(Protocol):
    """A place where quotas are kept."""

    @property
    def name(self) -> str:
        """Such as `quotas.toml`."""

    @property
    def takes_effect(self) -> str:
        """When a running Weir follows a change."""

    @property
    def settings(self) -> config.Settings:
        """Of the configuration; the defaults if there is none."""

    def warn(self) -> None:
        """Say on stderr what else one must know of these quotas."""

    def load(self) -> QuotaTable:
        """Return all quotas. Raises CommandError."""

    def alter(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> None:
        """Set these values, None to remove one; of the shadow entries or of the enforced ones. These entries
        get `options`; None: they keep theirs. Raises CommandError.
        """

    def diff(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> str:
        """Return what `alter` would change in a text; "" where there is none. Raises CommandError."""


def source_options(command: F) -> F:
    """Give a command the options that say which quotas, and their `Source` as argument `source`."""

    @wraps(command)
    def with_source(*, quotas: Path | None, config_file: Path | None, **others: object) -> object:
        return command(source=open_source(quotas, config_file), **others)

    return quotas_option(config_option(with_source))  # type: ignore[return-value]  # with other parameters


def open_source(quotas: Path | None, config_file: Path | None) -> Source:
    """The place of the quotas. Raises CommandError, click.UsageError."""
    if config_file is None:
        if quotas is None:
            raise click.UsageError("which quotas? give --quotas FILE, or --config weir.toml")
        return FileSource(quotas, config.Settings())
    with _one_line():
        loaded = config.load(config_file, {"quotas": str(quotas) if quotas is not None else None})
        if loaded.settings.quota_store != "file":
            if quotas is not None:
                raise click.UsageError(
                    f"either --quotas or --config: its quota_store is {loaded.settings.quota_store}"
                )
            return ClusterSource(loaded)
        if loaded.quota_file is None:
            raise CommandError(f"{config_file}: it names no quota file: set quotas, or give --quotas FILE")
        return FileSource(loaded.quota_file, loaded.settings)


class _Configured:
    """What sources share."""

    def __init__(self, settings: config.Settings) -> None:
        self.settings = settings

    def warn(self) -> None:
        """Say that nothing is enforced, if so."""
        if self.settings.quota_mode == "shadow":
            click.echo("quota_mode is shadow: none of these is enforced, all are only counted", err=True)


class FileSource(_Configured):
    """A quota file, changed as the server does it."""

    takes_effect: Final = "a running Weir follows it within two seconds"

    def __init__(self, path: Path, settings: config.Settings) -> None:
        super().__init__(settings)
        self._path = path

    @property
    def name(self) -> str:
        """The file."""
        return clean(self._path)

    def load(self) -> QuotaTable:
        """Read it."""
        with _one_line(), Progress(f"reading {self.name}"):
            return read_quota_file(self._path)

    def alter(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> None:
        """Rewrite it in one step; what the operator wrote stays where it can."""
        with _one_line(), Progress(f"writing {self.name}"):
            rewrite(self._path, changes, shadow=shadow, options=options)

    def diff(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> str:
        """What a rewrite would change."""
        with _one_line():
            before = self._path.read_text("utf-8")
            after = edited(before, changes, shadow=shadow, options=options)
        was, becomes = (text.splitlines(keepends=True) for text in (before, after))
        return "".join(unified_diff(was, becomes, self.name, self.name))


class ClusterSource(_Configured):
    """A store in the cluster: a topic, or the brokers themselves."""

    def __init__(self, loaded: config.Config) -> None:
        """Connects to nothing yet. Raises ConfigError."""
        super().__init__(loaded.settings)
        is_topic = loaded.settings.quota_store == "topic"
        self._store = topic_store(loaded) if is_topic else broker_store(loaded)
        self._where = loaded.settings.quota_topic if is_topic else loaded.settings.upstream

    @property
    def name(self) -> str:
        """Such as `topic __weir_quotas`."""
        return clean(f"{self._store.name} {self._where}")

    @property
    def takes_effect(self) -> str:
        """When a Weir that runs with this store has it."""
        return "a running Weir follows it within a second or two"

    def load(self) -> QuotaTable:
        """Ask for all of it."""
        with _one_line(), Progress(f"reading {self.name}"):
            return trio.run(self._store.load)

    def alter(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> None:
        """Send the changes."""
        with _one_line(), Progress(f"changing {self.name}"):
            if isinstance(self._store, TopicStore):
                trio.run(partial(self._store.alter, changes, shadow=shadow, options=options))
            elif shadow:
                raise CommandError(
                    "brokers store no shadow entries: set quota_mode = shadow, or quota_store = file or topic"
                )
            elif options not in (None, PLAIN):
                raise CommandError(
                    "brokers store no pacing and no scope: set quota_pacing, or quota_store = file or topic"
                )
            else:
                trio.run(self._store.alter, changes)

    def diff(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> str:
        """There is no text."""
        del changes, shadow, options
        return ""


@contextmanager
def _one_line() -> Iterator[None]:
    """What may go wrong with a place becomes a CommandError."""
    try:
        yield
    except (config.ConfigError, StoreError, QuotaFileError, UnicodeDecodeError) as error:
        raise CommandError(clean(error)) from None
    except OSError as error:
        raise CommandError(clean(f"{error.filename}: {error.strerror}")) from None
