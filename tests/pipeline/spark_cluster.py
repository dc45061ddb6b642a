"""A standalone Spark cluster of a master and two workers, whose executors' Python lacks Weir."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl
import pyspark

from weir.pipeline.java import launcher

ENTRY: Final = Path(__file__).parents[2] / "cli" / "pipeline" / "submit.py"
SUBMIT: Final = Path(pyspark.__file__).parent / "bin" / "spark-submit"
_CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"
FEW_ROWS: Final = Path(__file__).with_name("few_rows")
"""SPARK_CONF_DIR of the tests' drivers; the one of `weir demo` has Spark's own, as users have."""
SHORT: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java, for processes that end before thorough compiling has paid."""
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


class Cluster(NamedTuple):
    """A running master, and its two workers."""

    master: str
    """URL of the master."""
    env: dict[str, str]
    """Environment of drivers. Spark's scratch files are in the cluster's directory."""
    workers: tuple[int, ...]
    """Pids of the workers."""


@contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """Yield a cluster whose files are in `directory`; afterwards only its logs are left."""
    work, scratch = directory / "work", directory / "scratch"
    scratch.mkdir()
    settings = {"SPARK_CONF_DIR": str(FEW_ROWS), "SPARK_LOCAL_DIRS": str(scratch), "TMPDIR": str(scratch)}
    env = {**os.environ, **settings, "JAVA_TOOL_OPTIONS": SHORT}
    url = f"spark://127.0.0.1:{_free_port()}"
    deploy = "org.apache.spark.deploy"
    shared = ("--host", "127.0.0.1", "--webui-port", "0")
    master = (f"{deploy}.master.Master", *shared, "--port", url.rpartition(":")[2])
    worker = (
        f"{deploy}.worker.Worker",
        *shared,
        "--cores",
        "1",
        "--memory",
        "1g",
        "--work-dir",
        str(work),
        url,
    )
    with launcher(local=True), ExitStack() as running:
        for path in (work, scratch):
            running.callback(shutil.rmtree, path, ignore_errors=True)
        pids = []
        for name, command in (("master", master), ("worker-1", worker), ("worker-2", worker)):
            log = running.enter_context((directory / f"{name}.log").open("wb"))
            process = subprocess.Popen([str(_CLASS), *command], stdout=log, stderr=log, env=env)
            running.callback(process.wait)
            running.callback(process.terminate)
            pids.append(process.pid)
        _await(directory / "master.log", "Registering worker", 2)
        python = str(bare_python(scratch / "bare"))
        env |= {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
        yield Cluster(url, {**env, "SPARK_LOCAL_IP": "127.0.0.1"}, tuple(pids[1:]))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _await(log: Path, text: str, times: int) -> None:
    """Wait until a line with this text is in the log so often. Raises TimeoutError."""
    end_s = time.monotonic() + _STARTS_S
    while log.read_text("utf-8", "replace").count(text) < times:
        if time.monotonic() > end_s:
            raise TimeoutError(f"{log}: {log.read_text('utf-8', 'replace')[-2000:]}")
        time.sleep(0.2)
