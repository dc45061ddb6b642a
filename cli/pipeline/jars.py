"""`weir pipeline jars`: the jars that spark-submit needs."""

from __future__ import annotations

from typing import Final

import click

from weir.cli.exits import CommandError
from weir.pipeline.jars import JARS, loading, provided
from weir.pipeline.outcome import PipelineError

EXAMPLES: Final = """\b
Examples:
  spark-submit --master yarn --jars "$(weir pipeline jars)" cli/pipeline/submit.py rollup --lake hdfs:///lake
"""


@click.command(epilog=EXAMPLES)
@click.option("--s3", is_flag=True, help="Include the jars for paths on S3.")
def jars(s3: bool) -> None:
    """Print the paths of Delta Lake's jars and the Kafka connector's, with commas, and fetch missing ones."""
    try:
        click.echo(loading(provided(s3=s3))[JARS])
    except PipelineError as error:
        raise CommandError(str(error)) from None
