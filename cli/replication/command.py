"""`weir replication`: show the replication quotas of a running Weir."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Final

import click

from weir.cli.admin_endpoint import (
    AdminError,
    EndpointAccess,
    access_options,
    ask,
    needed_endpoint,
    settings_of,
)
from weir.cli.exits import CommandError
from weir.cli.quantity import Quantity
from weir.cli.quotas.show import clean
from weir.cli.replication.show import screen
from weir.cli.settings.options import config_file_option
from weir.proxy.addresses import Address
from weir.proxy.admin.replication.status import PATH, ReplicationStatus

INTERVAL_S: Final = 2.0
EXAMPLES: Final = """\b
Examples:
  weir replication status --admin weir:9644
  weir replication status --admin weir:9644 --watch --interval 5s
  weir replication status --config weir.toml --json | jq '.replicas[] | select(.in_sync | not)'
"""


@click.group()
def replication() -> None:
    """Show replication quotas (KIP-73) at work."""


@click.command(epilog=EXAMPLES)
@click.option(
    "--admin",
    metavar="HOST:PORT",
    help="The admin endpoint of a running Weir. [default: that of --config]",
)
@config_file_option("Weir's configuration, whose admin endpoint is asked.")
@access_options
@click.option("--watch", is_flag=True, help="Show the status again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=Quantity("s", least=0, above=True),
    default=INTERVAL_S,
    show_default=True,
    help="Time between two questions of --watch.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch, one a line.")
def status(
    admin: str | None,
    config_file: Path | None,
    token_file: Path | None,
    watch: bool,
    interval: float,
    as_json: bool,
) -> None:
    """Show brokers' replication rates, and how far throttled replicas are.

    A first table has the rate and the limit of each broker as leader and as follower. A second one has the
    throttled replicas, those that are not in sync first: "from -> to" are the node ids of leader and
    follower, done is the share of the copy, lag the number of offsets that the replica lacks, and left the
    time until it is in sync at its present rate, if the leader gets no new records. Exit codes: 0 done;
    2 wrong usage, or an admin endpoint that does not answer. While --watch runs, an endpoint may be away for
    a while.
    """
    settings = settings_of(config_file)
    address, access = needed_endpoint(admin, token_file, settings)
    with screen(as_json=as_json, watch=watch) as shown:
        for found in _statuses(address, access, interval if watch else None):
            if isinstance(found, ReplicationStatus):
                shown.show(found)
            else:
                shown.complain(clean(found))


def _statuses(
    address: Address, access: EndpointAccess, interval_s: float | None
) -> Iterator[ReplicationStatus | AdminError]:
    """Yield the status once, or every `interval_s` without end; an error if Weir does not answer later on.
    Raises CommandError if it does not answer the first question.
    """
    try:
        yield ask(address, PATH, {}, ReplicationStatus, access)
    except AdminError as error:
        raise CommandError(clean(error)) from None
    while interval_s is not None:
        sleep(interval_s)
        try:
            yield ask(address, PATH, {}, ReplicationStatus, access)
        except AdminError as error:
            yield error


replication.add_command(status)
