"""`weir run`: the proxy itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from cli.exits import USAGE
from proxy import config, logs
from proxy.run import run as run_proxy

F = TypeVar("F", bound=Callable[..., object])

EXAMPLES = """\b
Examples:
  weir run --upstream kafka-1:9092 --listen 0.0.0.0:19092 --quotas quotas.toml
  weir run --upstream kafka-1:9092,kafka-2:9092 --listen :9092 --broker-ports 9100-9120 --first-node-id 1001
  weir run --config weir.toml

\b
A quota file:
  [[quota]]
  client_id = "<default>"
  producer_byte_rate = 1048576   # bytes/s, at each broker
  controller_mutation_rate = 5   # partitions/s, in the whole cluster
"""


def _options_of_settings(command: F) -> F:
    """Give the command an option for every key of the configuration file; one not given stays None."""
    for field in reversed(msgspec.structs.fields(config.Settings)):
        kind = msgspec.inspect.type_info(field.type)
        description = ""
        if isinstance(kind, msgspec.inspect.Metadata):
            description = str((kind.extra_json_schema or {}).get("description", ""))
            kind = kind.type
        name = field.name.replace("_", "-")
        if isinstance(kind, msgspec.inspect.BoolType):
            default = name if field.default else f"no-{name}"
            name = f"{name}/--no-{name}"
        else:
            default = str(field.default)
        option = click.option(
            f"--{name}",
            field.name,
            type=_click_type(kind),
            default=None,
            help=f"{description}  [default: {default}]" if default else description,
        )
        command = option(command)
    return command


def _click_type(kind: msgspec.inspect.Type) -> click.ParamType[object]:
    match kind:
        case msgspec.inspect.LiteralType(values=values):
            return click.Choice([str(value) for value in values])
        case msgspec.inspect.IntType():
            return click.INT
        case msgspec.inspect.FloatType():
            return click.FLOAT
        case msgspec.inspect.BoolType():
            return click.BOOL
        case _:
            return click.STRING


@click.command(epilog=EXAMPLES)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file with the same keys, in snake_case; options given here win over it.",
)
@_options_of_settings
def run(config_file: Path | None, **options: object) -> None:
    """Run the proxy in front of a Kafka cluster until SIGTERM or SIGINT."""
    try:
        loaded = config.load(config_file, options)
        logs.configure(loaded.settings.log_level, loaded.settings.log_format)
        run_proxy(loaded)
    except config.ConfigError as error:
        click.echo(f"weir: {error}", err=True)
        sys.exit(USAGE)
