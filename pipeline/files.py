"""What ingest, and other jobs, do with single files of a lake: look, delete, note, lock.

By Hadoop's file systems, so wherever Spark can write.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError

from pipeline.outcome import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """The files below any path that Spark knows."""

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None  # it runs
        self._jvm = jvm
        self._settings = spark.sparkContext._jsc.hadoopConfiguration()

    def exists(self, path: str) -> bool:
        """Is there a file or directory? A broken connection is an error."""
        system, place = self._at(path)
        return bool(system.exists(place))

    def is_directory(self, path: str) -> bool:
        """Is there a directory?"""
        system, place = self._at(path)
        return bool(system.exists(place)) and bool(system.getFileStatus(place).isDirectory())

    def matching(self, pattern: str) -> list[str]:
        """The paths that match a pattern such as `usage/day=*/batch=5`."""
        system, place = self._at(pattern)
        return [str(status.getPath().toString()) for status in system.globStatus(place) or ()]

    def delete(self, path: str) -> None:
        """Delete a file, or a directory and all that is in it."""
        system, place = self._at(path)
        system.delete(place, True)

    def text(self, path: str) -> str:
        """What a small file says, nothing if it is not there."""
        system, place = self._at(path)
        if not system.exists(place):
            return ""
        stream = system.open(place)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def note(self, path: str, text: str) -> None:
        """Write a small file."""
        system, place = self._at(path)
        stream = system.create(place, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    @contextmanager
    def locked(self, path: str, job: str = "ingest") -> Iterator[None]:
        """Be the only one in the block. Raises PipelineError if another is.

        The lock is held by the JVM, which does the writing and may outlive this process for a moment. Only
        local file systems have such locks: elsewhere there is none.
        """
        system, place = self._at(path)
        if system.getScheme() != "file":
            yield
            return
        system.mkdirs(place.getParent())
        file = self._jvm.java.io.RandomAccessFile(place.toUri().getPath(), "rw")
        try:
            if not self._take(file):
                raise PipelineError(f"{path}: another {job} is at work here; wait for its end, or end it")
            yield
        finally:
            file.close()

    def _take(self, file: JavaObject) -> bool:
        channel = file.getChannel()
        try:
            return channel.tryLock() is not None
        except Py4JJavaError as error:  # held by this very JVM
            if "OverlappingFileLockException" not in str(error.java_exception):
                raise
            return False

    def _at(self, path: str) -> tuple[JavaObject, JavaObject]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._settings), place
