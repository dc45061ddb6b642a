"""Calls of one AdminClient. What a job and an outcome hold is in `admin.py`."""

from __future__ import annotations

import time
from typing import Any

from py4j.protocol import Py4JJavaError

from tests.java.process import do_job, properties

_CLOSE_S = 5


class Admin:
    def __init__(self, java: Any, config: dict[str, str]) -> None:
        self._java = java
        self._package = java.org.apache.kafka.clients.admin
        self._admin = self._package.AdminClient.create(properties(java, config))

    def close(self) -> None:
        self._admin.close(self._java.java.time.Duration.ofSeconds(_CLOSE_S))

    def create(self, topics: dict[str, int], retry: bool) -> tuple[Any, Any]:
        """The future of each topic, and of its number of partitions."""
        one = self._java.java.lang.Short("1")
        made = [self._package.NewTopic(name, partitions, one) for name, partitions in topics.items()]
        options = self._package.CreateTopicsOptions().retryOnQuotaViolation(retry)
        result = self._admin.createTopics(made, options)
        return result.values(), {name: result.numPartitions(name) for name in topics}

    def grow(self, topics: dict[str, int], retry: bool) -> tuple[Any, Any]:
        counts = {name: self._package.NewPartitions.increaseTo(count) for name, count in topics.items()}
        options = self._package.CreatePartitionsOptions().retryOnQuotaViolation(retry)
        return self._admin.createPartitions(counts, options).values(), {}

    def delete(self, topics: dict[str, int], retry: bool) -> tuple[Any, Any]:
        options = self._package.DeleteTopicsOptions().retryOnQuotaViolation(retry)
        return self._admin.deleteTopics(list(topics), options).topicNameValues(), {}

    def describe(self, topics: dict[str, int], _retry: bool) -> tuple[Any, Any]:
        return self._admin.describeTopics(list(topics)).topicNameValues(), {}


def outcome_of(admin: Admin, step: dict[str, Any]) -> dict[str, Any]:
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


def work(java: Any, job: dict[str, Any]) -> list[dict[str, Any]]:
    admin = Admin(java, job["config"])
    outcomes = [outcome_of(admin, step) for step in job["steps"]]
    admin.close()
    return outcomes


if __name__ == "__main__":
    do_job(work)
