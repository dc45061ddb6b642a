"""The file that spark-submit runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.pipeline.spark_cluster import ENTRY


def test_the_spark_submit_entry_file_does_not_import_modules_beside_it(tmp_path: Path) -> None:
    command = [sys.executable, str(ENTRY), "ingest", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith("Usage: submit.py ingest")
