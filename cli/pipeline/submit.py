"""The pipeline for a cluster: `spark-submit --jars "$(weir pipeline --spark-jars)" submit.py JOB --lake …`.

Jobs and options are those of `weir pipeline`.
"""

from __future__ import annotations

from weir.cli.exits import run_command
from weir.cli.pipeline.command import pipeline

if __name__ == "__main__":
    run_command(pipeline, "submit.py")
