"""The `weir` command."""

from __future__ import annotations

import os
from platform import python_version
from typing import Final

import click

from weir.cli.exits import run_command
from weir.cli.lazy import LazyCommand, LazyCommands
from weir.proxy import logs
from weir.proxy.build import VERSION, build

COMMANDS: Final = {
    "calibrate": LazyCommand(
        "weir.cli.calibrate:calibrate", "Measure what requests cost a broker, for request quotas."
    ),
    "capture": LazyCommand("weir.cli.capture:capture", "Record what clients and brokers send."),
    "check": LazyCommand(
        "weir.cli.settings.check:check", "Check settings, quotas and TLS files, or a running Weir."
    ),
    "config": LazyCommand(
        "weir.cli.settings.config:config_", "Write a configuration file, or show the settings in effect."
    ),
    "demo": LazyCommand("weir.cli.demo:demo", "Run real clients through Weir, and compare their rates."),
    "pipeline": LazyCommand(
        "weir.cli.pipeline.command:pipeline", "Turn recorded usage into quotas and reports, with Spark."
    ),
    "probe": LazyCommand("weir.cli.probe:probe", "Send requests to a server, and check what it does."),
    "quotas": LazyCommand("weir.cli.quotas.command:quotas", "Show, explain, change and import quotas."),
    "run": LazyCommand("weir.cli.run:run", "Run the proxy until SIGTERM or SIGINT."),
    "top": LazyCommand(
        "weir.cli.top.command:top", "Show who uses quotas and who is throttled, live in a terminal."
    ),
    "verify": LazyCommand("weir.cli.verify:verify", "Check captures against the rules of Kafka's protocol."),
}


def _say_version(context: click.Context, _option: click.Parameter, value: bool) -> None:
    """Print the versions of Weir and of Python, and whether Weir is compiled."""
    if value and not context.resilient_parsing:
        click.echo(f"weir, version {VERSION} ({build()}, Python {python_version()})")
        context.exit()


@click.group(
    commands=LazyCommands(COMMANDS),
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "auto_envvar_prefix": "WEIR",
    },
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    callback=_say_version,
    expose_value=False,
    help="Show the version and exit.",
)
@click.pass_context
def weir(context: click.Context) -> None:
    """A Kafka proxy that enforces Kafka's quotas on the wire, in front of unmodified brokers."""
    if os.environ.get("NO_COLOR"):
        context.color = False  # click's own output; rich obeys the variable itself
    logs.configure("warning", "console")  # `weir run` sets its own; output of --json must stay JSON


def main() -> None:
    """Run the command line; exit codes are those of `cli.exits`."""
    run_command(weir, "weir")
