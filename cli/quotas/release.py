"""`weir quotas set --release`: end the waits of clients whose quota was raised."""

from __future__ import annotations

from typing import NamedTuple

import click

from weir.cli.exits import NothingThereError
from weir.cli.quotas.admin_source import AdminSource
from weir.cli.quotas.show import echo_json
from weir.cli.quotas.source import QuotaSource
from weir.proxy.control.snapshots.records import Release, Released
from weir.proxy.control.snapshots.sentences import time_text
from weir.quotas import Entity


class Waits(NamedTuple):
    """The waits of a client's or a group's connections at a running Weir."""

    source: AdminSource
    client: Release

    def end(self) -> Released:
        """End the waits, as far as the present quotas allow. Raises CommandError."""
        return self.source.release(self.client)


def waits_of(source: QuotaSource, entity: Entity, *, dry_run: bool) -> Waits:
    """Return the waits that --release is to end. Raises click.UsageError if the options name no running Weir,
    or neither a client nor a group.
    """
    if dry_run:
        raise click.UsageError("either --release or --dry-run")
    if not isinstance(source, AdminSource):
        raise click.UsageError("--release asks a running Weir: give --admin HOST:PORT")
    user, client_id, group = entity.user or "", entity.client_id or "", entity.group or ""
    if not isinstance(user, str) or not isinstance(client_id, str) or not (user or client_id or group):
        raise click.UsageError("--release is for one --user, --client-id or --group")
    return Waits(source, Release(user=user, client_id=client_id, group=group))


def release_alone(waits: Waits, *, as_json: bool) -> None:
    """End the waits without a change of quotas. Raises NothingThereError if no connection waits."""
    released = waits.end()
    if not released.connections and not released.waiting:
        raise NothingThereError(f"no such connection waits at {waits.source.name}")
    if as_json:
        echo_json(released)
    else:
        show_released(released)


def show_released(released: Released) -> None:
    """Print how many connections were released, and how many wait on."""
    click.echo(f"connections released: {released.connections}")
    if released.waiting:
        wait = time_text(released.wait_ms)
        click.echo(f"still waiting: {released.waiting}, for at most {wait}, because of the present quotas")
