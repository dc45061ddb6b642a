"""A standalone Spark cluster of a master and two workers, whose executors' Python lacks Weir."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import polars as pl
import pyspark

from weir.pipeline.java import launcher

ENTRY: Final = Path(__file__).parents[2] / "cli" / "pipeline" / "submit.py"
SUBMIT: Final = Path(pyspark.__file__).parent / "bin" / "spark-submit"
_CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"
_STARTS_S: Final = 300.0


def bare_python(directory: Path) -> Path:
    """Make an environment with all packages of this one except Weir, and return its Python. A directory that
    a .pth file names is searched for packages, but not for further .pth files, such as Weir's.
    """
    venv.create(directory, symlinks=True)
    (own,) = directory.glob("lib/python*/site-packages")
    (own / "others.pth").write_text(str(Path(pl.__file__).parents[1]))
    found = directory / "bin" / "python"
    lacks = [
        str(found),
        "-c",
        "import importlib.util, sys; sys.exit(importlib.util.find_spec('weir') is not None)",
    ]
    subprocess.run(lacks, check=True, cwd=directory)
    return found


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """Yield the URL of the cluster's master. The logs are in `directory`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    shared = ("--host", "127.0.0.1", "--webui-port", "0")
    master = (f"{deploy}.master.Master", *shared, "--port", str(port))
    worker = (
        f"{deploy}.worker.Worker",
        *shared,
        "--cores",
        "1",
        "--memory",
        "1g",
        "--work-dir",
        str(directory),
    )
    with launcher(local=True), ExitStack() as running:
        for name, command in (("master", master), ("worker-1", (*worker, url)), ("worker-2", (*worker, url))):
            log = running.enter_context((directory / f"{name}.log").open("wb"))
            process = subprocess.Popen([str(_CLASS), *command], stdout=log, stderr=log, env=dict(os.environ))
            running.callback(process.wait)
            running.callback(process.terminate)
        _await(directory / "master.log", "Registering worker", 2)
        yield url


def _await(log: Path, text: str, times: int) -> None:
    """Wait until a line with this text is in the log so often. Raises TimeoutError."""
    end_s = time.monotonic() + _STARTS_S
    while log.read_text("utf-8", "replace").count(text) < times:
        if time.monotonic() > end_s:
            raise TimeoutError(f"{log}: {log.read_text('utf-8', 'replace')[-2000:]}")
        time.sleep(0.2)


def environment(python: Path) -> dict[str, str]:
    """Return the environment of a driver whose executors use this Python."""
    return {**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
