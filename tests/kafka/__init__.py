"""Real Kafka clusters, for tests and for trying things by hand (`python -m tests.kafka`).

Jars come from Maven Central by lock file, each verified by its hash: tests need no Ivy, Maven or Spark. A
cluster lives in a temporary directory and leaves nothing behind.
"""

from tests.kafka.cluster import Cluster, ClusterError
from tests.kafka.jars import JarError, locked_versions
from tests.kafka.java import JavaMissingError

__all__ = ["Cluster", "ClusterError", "JarError", "JavaMissingError", "locked_versions"]
