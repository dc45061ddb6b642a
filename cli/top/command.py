"""`weir top`: options, and the choice between the program, a table and JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeVar

import click
import msgspec

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
from weir.cli.settings.options import ENVIRONMENT_PREFIX, config_file_option
from weir.cli.top import replication
from weir.cli.top.plain import echo_records, echo_table
from weir.cli.top.readings import LIMIT_MAX, SORTS, Ask, Reader, TopReading, View, Wanted, read, read_all
from weir.proxy.addresses import Address

T = TypeVar("T")

INTERVAL_S: Final = 2.0
REPLICATION: Final = "replication"
"""The view of replication quotas, which is not part of the terminal program."""
EXAMPLES: Final = """\b
Examples:
  weir top --admin weir:9644 --admin-token-file admin.token
  weir top --config weir.toml --filter etl --sort rate
  weir top --admin localhost:9644 --once
  weir top --admin localhost:9644 --view replication
  weir top --admin localhost:9644 --json | jq '.entities.entities[] | select(.throttled_since_ms) | .sentence'
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--admin",
    metavar="HOST:PORT",
    envvar=f"{ENVIRONMENT_PREFIX}ADMIN",
    show_envvar=True,
    help="The admin endpoint of a running Weir. [default: that of --config]",
)
@config_file_option("Weir's configuration, whose admin endpoint is asked.")
@access_options
@click.option(
    "--interval",
    type=Quantity("s", least=0.5),
    default=INTERVAL_S,
    show_default=True,
    help="Time between two readings.",
)
@click.option("--once", is_flag=True, help="Print a table, and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print the API's records as one JSON object, and exit.")
@click.option(
    "--view",
    type=click.Choice([*(view.value for view in View), REPLICATION]),
    default=View.ENTITIES.value,
    show_default=True,
    help="The first list; --once prints it. Replication is shown alone.",
)
@click.option(
    "--shadow/--enforced",
    default=None,
    help="Show shadow quotas, or enforced ones. [default: enforced ones, if any quota is enforced]",
)
@click.option(
    "--sort",
    type=click.Choice(SORTS[View.ENTITIES]),
    default=SORTS[View.ENTITIES][0],
    show_default=True,
    help="Order of entities: throttled ones are always above the others.",
)
@click.option("--filter", "text", metavar="TEXT", default="", help="Show only names that contain this text.")
def top(
    admin: str | None,
    config_file: Path | None,
    token_file: Path | None,
    interval: float,
    once: bool,
    as_json: bool,
    view: str,
    shadow: bool | None,
    sort: str,
    text: str,
) -> None:
    """Show who uses which quota of a running Weir, who is throttled, its connections and its brokers, or how
    far throttled replicas are.

    Throttled entities come first. Keys: e, c and b choose the list, s the order, / a filter, h shadow quotas;
    Enter shows all of one record, space pauses, q ends. Exit codes: 0 done; 2 wrong usage, or an admin
    endpoint that does not answer at the start. Later on, an endpoint may be away for a while.
    """
    settings = settings_of(config_file)
    address, access = needed_endpoint(admin, token_file, settings)
    if view == REPLICATION:
        replication.watch(address, access, None if once or as_json else interval, as_json=as_json)
        return
    ask_it = asking(address, access)
    chosen = View(view)
    order = sort if chosen is View.ENTITIES else next(iter(SORTS[chosen]), "")
    wanted = Wanted(chosen, order, text, shadow)
    if as_json:
        whole = msgspec.structs.replace(wanted, limit=LIMIT_MAX, sort=sort)
        echo_records(_first(lambda wanted: read_all(ask_it, wanted), whole))
    elif once:
        whole = msgspec.structs.replace(wanted, limit=LIMIT_MAX)
        echo_table(whole, _first(lambda wanted: read(ask_it, wanted), whole))
    else:
        _run(lambda wanted: read(ask_it, wanted), wanted, interval)


def asking(address: Address, access: EndpointAccess) -> Ask:
    """Return a function that asks the endpoint at this address."""

    def asked(path: str, query: Mapping[str, str], kind: type[T], /) -> T:
        return ask(address, path, query, kind, access)

    return asked


def _first(reader: Reader, wanted: Wanted) -> TopReading:
    """Return the first reading. Raises CommandError if Weir does not answer."""
    try:
        return reader(wanted)
    except AdminError as error:
        raise CommandError(clean(error)) from None


def _run(reader: Reader, wanted: Wanted, interval_s: float) -> None:
    """Run the program until the user ends it."""
    if find_spec("textual") is None:
        raise CommandError('weir top needs textual: pip install "kafka-weir[top]", or use --once or --json')
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("weir top needs a terminal: use --once or --json in a pipe")
    first = _first(reader, wanted)
    from weir.cli.top.program import Program  # needs textual

    program = Program(reader, wanted, first, interval_s)
    program.run()
    if program.return_code:
        raise CommandError("weir top has failed: the message above is for a report")
    if program.interrupted:
        raise click.Abort
