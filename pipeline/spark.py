"""The Spark session that all jobs run in."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Final

from weir.pipeline.outcome import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",  # fewer shuffles for joins
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",  # caches are queried often
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
}


@contextmanager
def session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield a Spark session for the job `name`, and stop the session after the block. `master` None leaves
    the master to spark-submit; `settings` take precedence over `SETTINGS`.

    Raises PipelineError if Spark or Java is missing, or Spark does not start.
    """
    # Spark also raises the errors that it logs here.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    for logger in ("", "py4j.clientserver"):
        logging.getLogger(logger).addFilter(_is_not_raised_too)  # a logger keeps each filter once
    is_main = threading.current_thread() is threading.main_thread()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        spark = _start(name, master, settings or {})
        if is_main:  # PySpark's handler calls the JVM during other calls, and mixes up responses
            signal.signal(signal.SIGINT, signal.default_int_handler)
        spark.sparkContext.setLogLevel("ERROR")
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        raise
    try:
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
    process = getattr(spark.sparkContext._gateway, "proc", None)
    if process is not None:
        process.terminate()
        process.wait()


def submitted() -> bool:
    """Return True if spark-submit started this process, and therefore also the JVM, with its own settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _start(name: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    with ExitStack() as until_started:
        if not submitted():
            from weir.pipeline.java import launcher

            until_started.enter_context(launcher(local=master is not None and master.startswith("local")))
            quiet = until_started.enter_context(as_file(files("weir.pipeline").joinpath("log4j2.properties")))
            logging = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet.as_uri()}"}
            settings = {**logging, **settings}
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

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
