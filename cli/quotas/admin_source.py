"""The quotas of a running Weir, read and changed through its admin endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Final, TypeVar

import click
import msgspec
from click.core import ParameterSource

from weir.cli.admin_endpoint import (
    AdminError,
    EndpointAccess,
    access_options,
    ask,
    needed_endpoint,
    settings_of,
)
from weir.cli.exits import CommandError
from weir.cli.progress import Progress
from weir.cli.quotas.show import clean
from weir.cli.quotas.source import (
    ConfiguredSource,
    F,
    QuotaSource,
    config_option,
    open_source,
    quotas_option,
)
from weir.proxy.addresses import Address
from weir.proxy.config.settings import Settings
from weir.proxy.control.snapshots.filters import LIMIT_MAX
from weir.proxy.control.snapshots.records import (
    ChangedQuota,
    ClientGroup,
    ClientGroups,
    Quotas,
    Release,
    Released,
)
from weir.proxy.control.stores.records import entity_names, entity_of
from weir.proxy.handlers.quota_api.quota_admin import ReplicationChanges
from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.quotas.table.group_entry import GroupEntry, groups_of, read_group
from weir.quotas.table.options import DEFAULT_PACING, NEVER, Options
from weir.quotas.table.quota_table import Quota, has_budgets
from weir.quotas.table.times import read_time, written_time

PATH, GROUPS_PATH, RELEASE_PATH = "/api/quotas", "/api/groups", "/api/connections/release"
_admin_option: Final = click.option(
    "--admin",
    metavar="HOST:PORT",
    help="The admin endpoint of a running Weir, which reads and changes the quotas; changes need its token.",
)


def store_options(command: F) -> F:
    """Return the command with the options that name a store, or a running Weir; it gets the `QuotaSource` as
    `source`.
    """

    @wraps(command)
    def with_source(
        *,
        quotas: Path | None,
        config_file: Path | None,
        admin: str | None,
        token_file: Path | None,
        **others: object,
    ) -> object:
        source: QuotaSource
        if admin is None:
            source = open_source(quotas, config_file)
        else:
            given = click.get_current_context().get_parameter_source("quotas")
            if given is ParameterSource.COMMANDLINE:
                raise click.UsageError("either --quotas or --admin")
            settings = settings_of(config_file)
            source = AdminSource(*needed_endpoint(admin, token_file, settings), settings)
        return command(source=source, **others)

    options: Callable[..., object] = _admin_option(access_options(with_source))
    return quotas_option(config_option(options))  # type: ignore[return-value]  # with other parameters


P = TypeVar("P", Quotas, ClientGroups)


class AdminSource(ConfiguredSource):
    """A running Weir: it stores the changes, and puts them in force before it answers."""

    takes_effect: Final = "the changes are in force"

    def __init__(self, address: Address, access: EndpointAccess, settings: Settings) -> None:
        super().__init__(settings)
        self._address = address
        self._access = access

    @property
    def name(self) -> str:
        """Address of the Weir, as messages show it."""
        return f"Weir at {self._address}"

    def load(self) -> QuotaTable:
        """Return all quotas in force, without replication throttles. Raises CommandError."""
        sides: dict[str, tuple[dict[Quota, float], dict[Quota, Options]]] = {
            "enforce": ({}, {}),
            "shadow": ({}, {}),
        }
        try:
            with Progress(f"asking {self.name}"):
                for each in (each for page in self._pages(PATH, Quotas) for each in page.quotas):
                    values, options = sides[each.options.mode]
                    its = {(entity_of(each.entity), QuotaKey(key)): rate for key, rate in each.quotas.items()}
                    values |= its
                    until = None if each.options.until is None else read_time(each.options.until)
                    options |= dict.fromkeys(its, Options(each.options.pacing, each.options.scope, until))
                groups = [each for page in self._pages(GROUPS_PATH, ClientGroups) for each in page.groups]
            (values, options), (shadow, shadow_options) = sides.values()
            return QuotaTable(
                values, shadow, options, shadow_options, groups=groups_of(map(_group_entry, groups))
            )
        except (AdminError, ValueError) as error:
            raise CommandError(clean(error)) from None

    def _pages(self, path: str, kind: type[P]) -> Iterator[P]:
        """Yield the parts of a list. Raises AdminError."""
        offset, hidden = 0, 1
        while hidden:
            query = {"limit": str(LIMIT_MAX), "offset": str(offset)}
            page = ask(self._address, path, query, kind, self._access)
            yield page
            offset, hidden = offset + LIMIT_MAX, page.hidden

    def load_for_change(self) -> QuotaTable:
        """Return all quotas in force. Raises CommandError."""
        return self.load()

    def alter(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> None:
        """Have the Weir make the changes, those of one entity at a time. Raises CommandError."""
        by_entity: dict[Entity, dict[str, float | None]] = {}
        for (entity, key), value in changes.items():
            by_entity.setdefault(entity, {})[key.value] = value
        for entity, ops in by_entity.items():
            body: dict[str, object] = {"entity": entity_names(entity), "ops": ops}
            if shadow:
                body["mode"] = "shadow"
            if options is not None:
                body["until"] = NEVER if options.until is None else written_time(options.until)
            if options is not None and has_budgets(entity):
                pacing = DEFAULT_PACING if options.pacing is None else options.pacing.value
                body |= {"pacing": pacing, "scope": options.scope.value}
            try:
                with Progress(f"changing {self.name}"):
                    ask(self._address, PATH, {}, ChangedQuota, self._access, msgspec.json.encode(body))
            except AdminError as error:
                raise CommandError(clean(error)) from None

    def release(self, client: Release) -> Released:
        """Have the Weir end the waits of a client's or a group's connections, as far as the present quotas
        allow. Raises CommandError.
        """
        body = msgspec.json.encode(client)
        try:
            return ask(self._address, RELEASE_PATH, {}, Released, self._access, body)
        except AdminError as error:
            raise CommandError(clean(error)) from None

    def alter_replication(self, changes: ReplicationChanges) -> None:
        """Refuse the changes, because the admin endpoint has none of replication throttles."""
        del changes
        raise CommandError("the admin endpoint changes no replication throttles")

    def diff(
        self, changes: Mapping[Quota, float | None], *, shadow: bool, options: Options | None = None
    ) -> str:
        """Return the empty string, because there is no text that could be compared."""
        del changes, shadow, options
        return ""


def _group_entry(group: ClientGroup) -> GroupEntry:
    values = msgspec.to_builtins(group)
    return read_group(
        {key: list(its) if isinstance(its, tuple) else its for key, its in values.items() if its}
    )
