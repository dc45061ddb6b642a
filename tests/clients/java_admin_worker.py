"""Calls of one AdminClient, in a Java process of its own: `java_admin_worker.py < job.json > outcomes.json`.

What a job and an outcome hold is in `java_admin.py`. Needs py4j.
"""

import json
import sys
import time
from typing import Any

from py4j.java_gateway import (
    GatewayParameters,
    JavaGateway,
    launch_gateway,
)
from py4j.protocol import Py4JJavaError

_CLOSE_S = 5


class Admin:
    """An AdminClient."""

    def __init__(self, java: Any, config: dict[str, str]) -> None:
        self._java = java
        self._package = java.org.apache.kafka.clients.admin
        properties = java.java.util.Properties()
        for key, value in config.items():
            properties.setProperty(key, value)
        self._admin = self._package.AdminClient.create(properties)

    def close(self) -> None:
        """End it."""
        self._admin.close(self._java.java.time.Duration.ofSeconds(_CLOSE_S))

    def create(self, topics: dict[str, int], retry: bool) -> tuple[Any, Any]:
        """The future of each topic, and of its number of partitions."""
        one = self._java.java.lang.Short("1")
        made = [self._package.NewTopic(name, partitions, one) for name, partitions in topics.items()]
        options = self._package.CreateTopicsOptions().retryOnQuotaViolation(retry)
        result = self._admin.createTopics(made, options)
        return result.values(), {name: result.numPartitions(name) for name in topics}

    def grow(self, topics: dict[str, int], retry: bool) -> tuple[Any, Any]:
        """The future of each topic."""
        counts = {name: self._package.NewPartitions.increaseTo(count) for name, count in topics.items()}
        options = self._package.CreatePartitionsOptions().retryOnQuotaViolation(retry)
        return self._admin.createPartitions(counts, options).values(), {}

    def delete(self, topics: dict[str, int], retry: bool) -> tuple[Any, Any]:
        """The future of each topic."""
        options = self._package.DeleteTopicsOptions().retryOnQuotaViolation(retry)
        return self._admin.deleteTopics(list(topics), options).topicNameValues(), {}

    def describe(self, topics: dict[str, int], _retry: bool) -> tuple[Any, Any]:
        """The future of each topic."""
        return self._admin.describeTopics(list(topics)).topicNameValues(), {}


def outcome_of(admin: Admin, step: dict[str, Any]) -> dict[str, Any]:
    """Make a call and wait for all of it."""
    began = time.monotonic()
    outcome: dict[str, Any] = {"errors": {}, "throttle_ms": {}, "partitions": {}}
    futures, counts = getattr(admin, step["do"])(step["topics"], step["retry"])
    for name in step["topics"]:
        value, error = settled(futures[name])
        outcome["errors"][name] = "" if error is None else error.getClass().getSimpleName()
        if outcome["errors"][name] == "ThrottlingQuotaExceededException":
            outcome["throttle_ms"][name] = error.throttleTimeMs()
        if step["do"] == "describe" and error is None:
            outcome["partitions"][name] = value.partitions().size()
        if name in counts:
            count, unknown = settled(counts[name])
            outcome["partitions"][name] = count if unknown is None else unknown.getClass().getSimpleName()
    return outcome | {"seconds": time.monotonic() - began}


def settled(future: Any) -> tuple[Any, Any]:
    """What a future came to: its value and None, or None and the exception."""
    try:
        return future.get(), None
    except Py4JJavaError as error:
        return None, error.java_exception.getCause()


def main() -> None:
    """Do the job on stdin."""
    job = json.loads(sys.stdin.readline())
    port = launch_gateway(
        classpath=job["classpath"],
        jarpath=job["jar"],
        java_path=job["java"],
        javaopts=["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *job["options"]],
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    admin = Admin(gateway.jvm, job["config"])
    outcomes = [outcome_of(admin, step) for step in job["steps"]]
    admin.close()
    gateway.shutdown()
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
