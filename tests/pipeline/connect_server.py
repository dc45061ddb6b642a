"""A Spark Connect server on this machine, as docs/how-to/pipeline/cluster.md starts it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from tests.pipeline.spark_cluster import FEW_ROWS
from weir.pipeline.jars import loading, provided
from weir.pipeline.java import launcher

_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_PATIENCE_S: Final = 180.0
SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """Start a server; yield its URL once it listens. Its log is in the directory."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        **SETTINGS,
        **loading(provided()),
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.local.dir": str(directory),
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--class", _CLASS]
    command += ["--master", "local[2]", "--driver-memory", "1g"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    log = directory / "server.log"
    with (
        launcher(local=True),
        log.open("w") as output,
        subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            cwd=directory,
            env={**os.environ, "SPARK_CONF_DIR": str(FEW_ROWS)},
        ) as process,
    ):
        try:
            _wait(process, port, log)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.1)
        else:
            return
