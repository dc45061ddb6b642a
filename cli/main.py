"""The `weir` command."""

from __future__ import annotations

import os
from platform import python_version

import click

from weir.cli.calibrate import calibrate
from weir.cli.capture import capture
from weir.cli.demo import demo
from weir.cli.exits import run_command
from weir.cli.man import man
from weir.cli.pipeline.command import pipeline
from weir.cli.probe import probe
from weir.cli.quotas.command import quotas
from weir.cli.replication.command import replication
from weir.cli.run import run
from weir.cli.settings.check import check
from weir.cli.settings.config import config_
from weir.cli.top.command import top
from weir.cli.verify import verify
from weir.cli.versions import versions
from weir.proxy import logs
from weir.proxy.build import VERSION, build


def _say_version(context: click.Context, _option: click.Parameter, value: bool) -> None:
    """Print the versions of Weir and of Python, and whether Weir is compiled."""
    if value and not context.resilient_parsing:
        click.echo(f"weir, version {VERSION} ({build()}, Python {python_version()})")
        context.exit()


@click.group(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "auto_envvar_prefix": "WEIR",
    }
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


weir.add_command(run)
weir.add_command(check)
weir.add_command(config_)
weir.add_command(man)
weir.add_command(demo)
weir.add_command(quotas)
weir.add_command(replication)
weir.add_command(top)
weir.add_command(versions)
weir.add_command(verify)
weir.add_command(probe)
weir.add_command(calibrate)
weir.add_command(capture)
weir.add_command(pipeline)

# `weir --help` cuts off first sentences that do not fit into 80 columns.
run.short_help = "Run the proxy until SIGTERM or SIGINT."
check.short_help = "Check settings, quotas and TLS files, without a broker."
config_.short_help = "Write a configuration file, or show the settings in effect."
man.short_help = "Print the manual page, for man(1)."
demo.short_help = "Run real clients through Weir, and compare their rates."
quotas.short_help = "Show, explain, change and import quotas."
replication.short_help = "Show replication rates, and throttled replicas."
top.short_help = "Show who uses quotas and who is throttled, live in a terminal."
calibrate.short_help = "Measure what requests cost a broker, for request quotas."
capture.short_help = "Record what clients and brokers send, and convert records."
pipeline.short_help = "Turn recorded usage into quotas and reports, with Spark."
verify.short_help = "Check captures against the rules of Kafka's protocol."
probe.short_help = "Send requests to a server, and check what it does."
versions.short_help = "Show what versions a broker speaks, and what Weir offers."


def main() -> None:
    """Run the command line; exit codes are those of `cli.exits`."""
    run_command(weir, "weir")
