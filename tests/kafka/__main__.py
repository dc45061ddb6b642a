"""`python -m tests.kafka`: a real cluster by hand."""

from __future__ import annotations

import signal
import sys
import time
from typing import NoReturn

import click

from tests.kafka import jars
from tests.kafka.cluster import Cluster, ClusterError
from tests.kafka.jars import JarError
from tests.kafka.java import JavaMissingError
from tests.kafka.lock import write_lock
from tests.kafka.sasl import ALICE

_CHECK_S = 0.5


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
@click.argument("version")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=9092, show_default=True, help="First broker's port."
)
@click.option("--brokers", type=click.IntRange(1, 20), default=1, show_default=True)
@click.option(
    "--first-id", type=click.IntRange(0), default=0, show_default=True, help="First broker's node id."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="For server.properties; repeatable."
)
@click.option("--sasl", "with_sasl", is_flag=True, help="Add a listener with SASL; see tests/kafka/sasl.py.")
@click.option("--heap", default="384m", show_default=True, help="Java heap of each broker.")
def run(
    version: str,
    port: int,
    brokers: int,
    first_id: int,
    settings: tuple[str, ...],
    with_sasl: bool,
    heap: str,
) -> None:
    """Start a cluster; Ctrl-C or SIGTERM ends it and deletes its data."""
    signal.signal(signal.SIGTERM, _leave)
    began = time.monotonic()
    overrides = dict(map(_pair, settings))
    cluster = Cluster(
        version,
        brokers=brokers,
        port=port,
        first_id=first_id,
        settings=overrides,
        with_sasl=with_sasl,
        heap=heap,
        optimized=True,  # nobody knows what it is for
        say=_say,
    )
    with cluster:
        _say(f"Kafka {version} is ready at {cluster.bootstrap} after {time.monotonic() - began:.1f} s")
        if with_sasl:
            _say(
                f"SASL at {cluster.sasl_bootstrap}, for example user {ALICE.name}, password {ALICE.password}"
            )
        _say(f"logs: {cluster.logs}; Ctrl-C ends it and deletes everything")
        while True:
            cluster.check()
            time.sleep(_CHECK_S)


@main.command()
@click.argument("versions", nargs=-1, metavar="[VERSION]...")
def fetch(versions: tuple[str, ...]) -> None:
    """Download the jars of VERSIONs (default: all), without starting anything."""
    for version in versions or jars.locked_versions():
        paths = jars.classpath(version, _say)
        _say(f"Kafka {version}: {len(paths)} jars in {jars.cache_directory()}")


@main.command("list")
def list_versions() -> None:
    """Show which versions there are."""
    for version in jars.locked_versions():
        locked = jars.read_lock(version)
        click.echo(f"{version:10} {len(locked):3} jars {sum(jar.size for jar in locked) / 1e6:5.1f} MB")


@main.command()
@click.argument("version")
def lock(version: str) -> None:
    """Write the lock file of a VERSION. Needs Maven."""
    _say(f"wrote {write_lock(version)}")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    return key, value


def _say(text: str) -> None:
    click.echo(text, err=True)


def _leave(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        main(prog_name="python -m tests.kafka", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        _say("ended")
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (ClusterError, JarError, JavaMissingError) as error:
        sys.exit(f"error: {error}")
