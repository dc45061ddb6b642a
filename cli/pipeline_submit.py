"""The pipeline for a cluster: `spark-submit --py-files kafka_weir.whl pipeline_submit.py ingest --lake …`.

The jobs and their options are those of `weir pipeline`.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Python looks beside a script first, and there are cli's modules, some called like rooms.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [path for path in sys.path if Path(path).resolve() != _HERE]

from cli.exits import run_command  # noqa: E402  # only now it is the right cli
from cli.pipeline import pipeline  # noqa: E402  # as above

if __name__ == "__main__":
    run_command(pipeline, "pipeline_submit.py")
