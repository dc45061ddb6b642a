"""`weir run`: the proxy."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import click

from weir.cli.exits import FAILED, USAGE
from weir.cli.settings.options import FLAGS, config_option, setting_options
from weir.proxy import logs
from weir.proxy.config import config
from weir.proxy.run import run as run_proxy

EXAMPLES = """\b
Examples:
  weir run --upstream kafka-1:9092 --listen 0.0.0.0:19092 --quotas quotas.toml
  weir run --upstream kafka-1:9092,kafka-2:9092 --listen :9092 --broker-ports 9100-9120@1001
  weir run --config weir.toml

\b
A quota file:
  [[quota]]
  client_id = "<default>"
  producer_byte_rate = 1048576   # bytes/s, at each broker
  request_percentage = 25        # percent of one thread's time, at each broker
  controller_mutation_rate = 5   # partitions/s, in the whole cluster
"""


@click.command(epilog=EXAMPLES)
@config_option
@setting_options(*FLAGS)
def run(config_file: Path | None, **options: object) -> None:
    """Run the proxy in front of a Kafka cluster until SIGTERM or SIGINT."""
    with logs.in_background():
        try:
            loaded = config.load(config_file, options)
            logs.configure(loaded.settings.log_level)
            run_proxy(loaded, lambda: config.load(config_file, options))
        except config.ConfigError as error:
            click.echo(f"weir: {error}", err=True)
            sys.exit(USAGE)
        except Exception:  # noqa: BLE001  # here, because the interpreter itself would wait for the log's reader
            traceback.print_exc()
            sys.exit(FAILED)
