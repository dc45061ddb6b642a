"""`weir pipeline ingest`: read usage records into the tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from weir.cli.exits import CommandError
from weir.cli.pipeline.run import cluster_option, job_options, retention_option, run_job
from weir.cli.quantity import Quantity
from weir.pipeline.spark import at_server
from weir.proxy.files import read_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weir.pipeline.ingest.sources import Source
    from weir.pipeline.outcome import Outcome

PROPERTIES_BYTES_MAX: Final = 1024 * 1024
EXAMPLES: Final = """\b
Examples:
  weir pipeline ingest --lake /srv/lake --files /var/lib/weir/usage --once
  weir pipeline ingest --lake /srv/lake --files /var/lib/weir/usage --every 30s
  weir pipeline ingest --lake /srv/lake --topic weir-usage --bootstrap-servers kafka-1:9092
  weir pipeline ingest --lake /srv/lake --topic weir-usage --bootstrap-servers kafka-1:9093 \\
      --kafka-config client.properties --once --json
"""


@click.command(epilog=EXAMPLES)
@job_options
@click.option(
    "--files",
    "directory",
    metavar="DIR",
    help="The directory with Weir's usage files, on a cluster one that all of its machines have.",
)
@click.option("--topic", metavar="TOPIC", help="The topic of usage; traces are in TOPIC-trace.")
@click.option("--bootstrap-servers", metavar="HOST:PORT,...", help="Brokers that have the topic.")
@click.option(
    "--kafka-config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Properties for Kafka's Java client, one key=value per line: security.protocol and so on.",
)
@click.option(
    "--kind",
    type=click.Choice(["usage", "trace", "both"]),
    default="both",
    show_default=True,
    help="The kind of records to read.",
)
@click.option("--once", is_flag=True, help="Read all existing records, and exit.")
@click.option(
    "--every",
    "every_s",
    type=Quantity("s", 0),
    default="60s",
    show_default=True,
    help="Without --once: time between batches, until SIGINT or SIGTERM.",
)
@cluster_option
@retention_option
@click.option(
    "--batch-bytes",
    type=Quantity("bytes", 1, whole=True),
    default="512MiB",
    show_default=True,
    help="Approximate size of a batch from files.",
)
@click.option(
    "--batch-records",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Number of records in a batch from a topic.",
)
@click.option("--skip-lost", is_flag=True, help="Continue if records were deleted before they were read.")
def ingest(
    root: str,
    master: str | None,
    as_json: bool,
    directory: str | None,
    topic: str | None,
    bootstrap_servers: str | None,
    kafka_config: Path | None,
    kind: str,
    once: bool,
    every_s: float,
    cluster: str,
    retention_days: int | None,
    batch_bytes: int,
    batch_records: int,
    skip_lost: bool,
) -> None:
    """Read usage records and traces into the tables, each exactly once, even if it is killed and run again.

    Reads --files (.jsonl, .jsonl.gz, .jsonl.zst) or --topic. Records that the tables have already are
    counted, not added. Lines that are no records go to the table `rejected`. Files that are
    not read are listed.
    """
    if (directory is None) == (topic is None) or (topic is None) != (bootstrap_servers is None):
        raise CommandError("say where from: either --files DIR, or --topic TOPIC with --bootstrap-servers")
    if at_server(master):
        raise CommandError("ingest cannot run at Spark Connect: leave out --master sc://")
    properties = {} if kafka_config is None else _properties(kafka_config)

    def job(spark: SparkSession) -> Outcome:
        from weir.pipeline.ingest.job import ingest as take
        from weir.pipeline.ingest.parse import DAY_MS, Rules
        from weir.pipeline.ingest.sources import Directory, Topic
        from weir.pipeline.lake import Lake

        source: Source
        if directory is not None:
            source = Directory(directory, batch_bytes, skip_lost)
        else:
            assert topic is not None and bootstrap_servers is not None  # noqa: PT018  # checked together above
            source = Topic(topic, bootstrap_servers, properties, batch_records, skip_lost)
        return take(
            spark,
            Lake(root),
            source,
            kinds=("usage", "trace") if kind == "both" else (kind,),
            every_s=None if once else every_s,
            cluster=cluster,
            rules=Rules(retention_days and retention_days * DAY_MS),
            say=_nobody if as_json else click.echo,
        )

    run_job("ingest", job, master=master, as_json=as_json)


def _nobody(line: str) -> None:
    """Ignore a line of progress: with --json, standard output has one JSON object only."""


def _properties(path: Path) -> dict[str, str]:
    """Read a file of `key=value` lines; `#` begins a comment line. Raises CommandError if the file cannot be
    read or a line is malformed.
    """
    try:
        lines = read_text(path, PROPERTIES_BYTES_MAX, pipes=True).splitlines()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    properties = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            # The line is not quoted: it may be a secret.
            raise CommandError(f"{path}:{number}: expected key=value")
        properties[key.strip()] = value.strip()
    return properties
