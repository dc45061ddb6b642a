"""The pipeline for a cluster: `spark-submit --py-files kafka_weir.whl submit.py ingest --lake …`.

Jobs and options are those of `weir pipeline`.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Python searches a script's folder first; cli's modules there have names of top-level packages.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [path for path in sys.path if Path(path).resolve() != _HERE]

from cli.exits import run_command  # noqa: E402  # cli is importable only now
from cli.pipeline.command import pipeline  # noqa: E402  # as above

if __name__ == "__main__":
    run_command(pipeline, "submit.py")
