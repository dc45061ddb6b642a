"""`weir quotas release`: end the waits of clients whose quota was raised."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from weir.cli.admin_endpoint import AdminError, access_options, ask, needed_endpoint, settings_of
from weir.cli.exits import CommandError, NothingThereError
from weir.cli.quotas.entity import check_user
from weir.cli.quotas.show import clean
from weir.cli.quotas.source import config_option
from weir.proxy.control.snapshots.records import Release, Released
from weir.proxy.control.snapshots.sentences import time_text


@click.command(
    epilog="""\b
Examples:
  weir quotas release --admin weir-1:9644 --admin-token-file token --user alice
  weir quotas release --config weir.toml --group payments
"""
)
@click.option("--admin", metavar="HOST:PORT", help="The admin endpoint. [default: that of --config]")
@access_options
@config_option
@click.option("--user", metavar="NAME", default="", help="A principal's name, without User:.")
@click.option("--client-id", metavar="NAME", default="", help="A client-id; with --user, of that user only.")
@click.option("--group", metavar="NAME", default="", help="A group (its members); <all> is every client.")
def release(
    admin: str | None,
    token_file: Path | None,
    config_file: Path | None,
    user: str,
    client_id: str,
    group: str,
) -> None:
    """End the waits of a client's or a group's connections to a running Weir, as far as present quotas allow.

    A raised quota does not shorten throttle times that began before. Exit code 1 if no connection waits.
    """
    check_user(user)
    if not (user or client_id or group):
        raise click.UsageError("whose waits? give --user, --client-id, or --group")
    settings = settings_of(config_file)
    address, access = needed_endpoint(admin, token_file, settings)
    body = msgspec.json.encode(Release(user=user, client_id=client_id, group=group))
    try:
        released = ask(address, "/api/connections/release", {}, Released, access, body)
    except AdminError as error:
        raise CommandError(clean(error)) from None
    if not released.connections and not released.waiting:
        raise NothingThereError(f"no such connection waits at {address}")
    click.echo(f"connections released: {released.connections}")
    if released.waiting:
        wait = time_text(released.wait_ms)
        click.echo(f"still waiting: {released.waiting}, for at most {wait}, because of the present quotas")
