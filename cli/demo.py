"""`weir demo`: real producers and consumers, without quotas and with them, in forty seconds."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from types import FrameType
from typing import Final

import click

from weir.cli.exits import DONE, FAILED, USAGE
from weir.cli.quantity import Quantity
from weir.cli.settings.options import UPSTREAM_VARIABLE
from weir.demo.errors import DemoError

EXAMPLES = """\b
Examples:
  weir demo
  weir demo --upstream kafka-1:9092 --for 60
  weir demo --json | jq .passed
"""


upstream_option: Final = click.option(
    "--upstream",
    metavar="HOST:PORT",
    envvar=UPSTREAM_VARIABLE,
    show_envvar=True,
    help="Use this cluster, with new topics that are deleted at the end. [default: a mock cluster]",
)
json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object at the end, and nothing else."
)
"""The option --json, which `weir demo` and `weir pipeline demo` share."""


@click.command(epilog=EXAMPLES)
@upstream_option
@click.option(
    "--for",
    "seconds",
    metavar="DURATION",
    type=Quantity("s", 5, 3600),
    default=15,
    show_default=True,
    help="Duration of the measurement under quotas; it begins 20 seconds after the start.",
)
@json_option
def demo(upstream: str | None, seconds: float, as_json: bool) -> None:
    """Run producers and consumers through Weir, first without quotas, then under quotas.

    Exit code 0 if each exceeds its quota before and is within 20 % of it after, 1 if not, 2 if the
    demonstration cannot run.
    """
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        passed = _run(upstream, seconds, as_json)
    except DemoError as error:
        click.echo(f"weir: {error}", err=True)
        sys.exit(USAGE)
    except KeyboardInterrupt:
        click.echo("stopped; nothing is left running", err=True)
        sys.exit(128 + signal.SIGINT)
    sys.exit(DONE if passed else FAILED)


def _run(upstream: str | None, seconds: float, as_json: bool) -> bool:
    if find_spec("confluent_kafka") is None:
        raise DemoError("the demonstration needs confluent-kafka: install it beside Weir, or use `make demo`")
    from weir.demo.run import run
    from weir.demo.screens import screen

    return run(upstream, seconds, screen(json=as_json))


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt at a signal, so that the demonstration stops its processes and deletes its
    topics as after Ctrl-C.
    """
    raise KeyboardInterrupt
