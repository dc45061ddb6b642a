"""The pipeline for a cluster: `spark-submit --py-files kafka_weir.whl pipeline_submit.py ingest --lake …`.

The jobs and their options are those of `weir pipeline`.
"""

from __future__ import annotations

from cli.exits import run_command
from cli.pipeline import pipeline

if __name__ == "__main__":
    run_command(pipeline, "pipeline_submit.py")
