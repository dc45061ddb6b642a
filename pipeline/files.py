"""List, read, write, delete and lock single files of a lake.

Hadoop's file systems do the work, so that it succeeds at every path to which Spark can write.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError

from weir.pipeline.outcome import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """Lists, reads, writes, deletes and locks files at any path that Spark can access. All methods raise
    Py4JJavaError if the file system fails.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None  # the session is running
        self._jvm = jvm
        self._settings = spark.sparkContext._jsc.hadoopConfiguration()

    def exists(self, path: str) -> bool:
        """Return True if the path is a file or a directory."""
        system, place = self._at(path)
        return bool(system.exists(place))

    def is_directory(self, path: str) -> bool:
        """Return True if the path is a directory."""
        system, place = self._at(path)
        return bool(system.exists(place)) and bool(system.getFileStatus(place).isDirectory())

    def matching(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern of Hadoop, such as `usage/day=*/batch=5`."""
        system, place = self._at(pattern)
        return [str(status.getPath().toString()) for status in system.globStatus(place) or ()]

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its content; do nothing if the path does not exist."""
        system, place = self._at(path)
        system.delete(place, True)

    def text(self, path: str) -> str:
        """Return the text of a small UTF-8 file; "" if the file does not exist."""
        system, place = self._at(path)
        if not system.exists(place):
            return ""
        stream = system.open(place)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def note(self, path: str, text: str) -> None:
        """Write a small UTF-8 file; replace the file if it exists."""
        system, place = self._at(path)
        stream = system.create(place, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    @contextmanager
    def locked(self, path: str, job: str = "ingest") -> Iterator[None]:
        """Hold an exclusive lock on the file `path` during the block. Raises PipelineError, which names
        `job`, if another process holds the lock.

        The JVM holds the lock, because it writes the tables and may outlive this process for a moment. Only
        local file systems have locks; on others the block runs without a lock.
        """
        system, place = self._at(path)
        if system.getScheme() != "file":
            yield
            return
        system.mkdirs(place.getParent())
        file = self._jvm.java.io.RandomAccessFile(place.toUri().getPath(), "rw")
        try:
            if not self._take(file):
                raise PipelineError(f"{path}: another {job} is running here; wait until it ends, or stop it")
            yield
        finally:
            file.close()

    def _take(self, file: JavaObject) -> bool:
        channel = file.getChannel()
        try:
            return channel.tryLock() is not None
        except Py4JJavaError as error:  # this JVM holds the lock already
            if "OverlappingFileLockException" not in str(error.java_exception):
                raise
            return False

    def _at(self, path: str) -> tuple[JavaObject, JavaObject]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._settings), place
