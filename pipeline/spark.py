"""The Spark session that all jobs run in."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weir.pipeline.jars import JARS, loading, provided
from weir.pipeline.outcome import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # tasks that read a log; the logs are short
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",  # VACUUM starts this many tasks
    "spark.databricks.delta.properties.defaults.dataSkippingNumIndexedCols": "7",  # the columns of filters
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",  # fewer shuffles for joins
    "spark.sql.codegen.hugeMethodLimit": "8000",  # HotSpot compiles no longer method
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",  # a lower limit is computed at every row
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",  # caches are queried often
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

ROOMS: Final = ("pipeline", "quotas", "usage")
"""Weir's rooms whose code runs in executors."""
JAVA_OPTIONS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Environment variables with options that Java, or Spark's script, adds to those of the driver, such as the
choice of a garbage collector.
"""


def at_server(master: str | None) -> bool:
    """Return True if this is the URL of a Spark Connect server, which has Java, Delta Lake and all jars."""
    return master is not None and master.startswith("sc://")


def is_local(master: str) -> bool:
    """Return True if a master's executors are threads of the driver.

    >>> is_local("local[*]"), is_local("local-cluster[2,1,1024]")
    (True, False)
    """
    return master.partition("[")[0] == "local"


def _archive(path: Path) -> Path:
    """Write the code for executors to `path`, as a zip file: Spark loads no wheel. Return the path."""
    package = Path(str(files("weir")))
    modules = (module for room in ROOMS for module in (package / room).rglob("*.py"))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in (package / "__init__.py", *modules):
            archive.write(module, module.relative_to(package.parent))
    return path


@contextmanager
def session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield a Spark session for the job `name`, and stop the session after the block. `master` None leaves
    the master to spark-submit; `settings` take precedence over `SETTINGS`. Unless spark-submit started this
    process or `settings` has `spark.jars`, the locked jars are loaded, and downloaded if they are missing.
    A Spark Connect server (`at_server`) has its own. Executors on other machines get Weir's code from here,
    because they may lack it, or have another release.

    Raises PipelineError if Spark, Java or a jar is missing, or Spark does not start.
    """
    if master is not None and at_server(master):
        yield from _connected(master, {**SETTINGS, **(settings or {})})
        return
    with tempfile.TemporaryDirectory(prefix="weir-spark-") as directory:
        # Spark would create the unused warehouse where the job runs.
        warehouse = {"spark.sql.warehouse.dir": Path(directory, "warehouse").as_uri()}
        yield from _own(name, master, {**warehouse, **(settings or {})}, Path(directory))


def _own(
    name: str, master: str | None, settings: Mapping[str, str], directory: Path
) -> Iterator[SparkSession]:
    """Yield a session of a Spark that starts here, and stop that Spark afterwards. Spark uses `directory`."""
    # Spark also raises the errors that it logs here.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    for logger in ("", "py4j.clientserver"):
        logging.getLogger(logger).addFilter(_is_not_raised_too)  # a logger keeps each filter once
    is_main = threading.current_thread() is threading.main_thread()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        spark = _start(name, master, settings)
        if is_main:  # PySpark's handler calls the JVM during other calls, and mixes up responses
            signal.signal(signal.SIGINT, signal.default_int_handler)
        spark.sparkContext.setLogLevel("ERROR")
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        raise
    try:
        if not is_local(spark.sparkContext.master or ""):
            spark.sparkContext.addPyFile(str(_archive(directory / "weir.zip")))
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        yield spark
    except KeyboardInterrupt:
        _end_java(spark)
        raise
    except BaseException:
        from py4j.protocol import Py4JError

        with suppress(OSError, Py4JError):  # if Java has died, the original error says so
            spark.stop()
        raise
    spark.stop()


def _connected(url: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a session at the server `url`, and end the session afterwards. Settings that only a starting
    Spark takes stay as the server has them. Raises PySparkException if no session begins.
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(url).getOrCreate()
    try:
        for name, value in settings.items():
            if spark.conf.isModifiable(name):
                spark.conf.set(name, value)
        yield spark
    finally:
        spark.stop()


_RAISED_TOO: Final = {
    "KeyboardInterrupt while sending command.",
    "Exception while sending command.",
    "Exception occurred while shutting down connection",
}
"""Log messages of Py4J to suppress: Py4J logs a traceback when Ctrl-C or the end of Java aborts a call, and
raises the error as well.
"""


def _is_not_raised_too(record: logging.LogRecord) -> bool:
    return record.msg not in _RAISED_TOO


def _end_java(spark: SparkSession) -> None:
    """Terminate the JVM, if this process started it, without calling it: after an interrupt, the connection
    to the JVM may be in the middle of a response.
    """
    # PySpark has no public handle of the process that it starts, and any other way asks the JVM itself.
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is not None:
        # PySpark's server of accumulators prints a traceback if Java's connection ends first.
        spark.sparkContext._accumulatorServer.shutdown()
        process.terminate()
        process.wait()


def submitted() -> bool:
    """Return True if spark-submit started this process, and therefore also the JVM, with its own settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def _stdout_as_stderr() -> Iterator[None]:
    """Within the block, let processes that start write to standard error instead of standard output. Delta
    prints lines there (VACUUM), which would be between a job's own.
    """
    sys.stdout.flush()
    saved = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _start(name: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    with ExitStack() as until_started:
        if not submitted():
            from weir.pipeline.java import launcher

            until_started.enter_context(launcher(local=master is not None and master.startswith("local")))
            quiet = until_started.enter_context(as_file(files("weir.pipeline").joinpath("log4j2.properties")))
            java = f"-Dlog4j2.configurationFile={quiet.as_uri()}"
            if not any("GC" in os.environ.get(name, "") for name in JAVA_OPTIONS):
                # It takes less time of few cores than Java's default. Java does not start with two.
                java += " -XX:+UseParallelGC"
            jars = {} if JARS in settings else loading(provided())
            settings = {"spark.driver.extraJavaOptions": java, **jars, **settings}
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

        until_started.enter_context(_stdout_as_stderr())
        builder = SparkSession.builder.appName(f"weir {name}")
        if master is not None:
            builder = builder.master(master)
        for key, value in {**SETTINGS, **settings}.items():
            builder = builder.config(key, value)
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise PipelineError("Spark's Java ended while it started: see what it printed above") from None
