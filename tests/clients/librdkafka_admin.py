"""librdkafka's admin client, through confluent-kafka, in this process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.clients.admin import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.admin import Step

_TIMEOUT_S = 60.0


class LibrdkafkaAdmin:
    """See `admin.Admin`. Release 2.16.0 speaks CreateTopics v4, CreatePartitions v0 and DeleteTopics v1."""

    def __init__(self, bootstrap: str, client_id: str = "weir-tests") -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": client_id, "log_level": 2})

    def run(self, *steps: Step) -> Sequence[Outcome]:
        """Errors are librdkafka's names for codes."""
        return [self._outcome(step) for step in steps]

    def _outcome(self, step: Step) -> Outcome:
        began, errors, partitions = time.monotonic(), {}, {}
        if step.do == "describe":
            known = self._admin.list_topics(timeout=_TIMEOUT_S).topics
            partitions = {name: len(known[name].partitions) for name in step.topics if name in known}
            errors = {name: "" if name in known else "UNKNOWN_TOPIC_OR_PART" for name in step.topics}
        else:
            errors = {name: _error(future) for name, future in self._futures(step).items()}
        return Outcome(errors, {}, partitions, time.monotonic() - began)

    def _futures(self, step: Step) -> dict[str, Any]:
        admin, wait_s = self._admin, _TIMEOUT_S
        if step.do == "create":
            made = [NewTopic(name, count, 1) for name, count in step.topics.items()]
            return dict(admin.create_topics(made, request_timeout=wait_s))
        if step.do == "grow":
            grown = [NewPartitions(name, count) for name, count in step.topics.items()]
            return dict(admin.create_partitions(grown, request_timeout=wait_s))
        return dict(admin.delete_topics(list(step.topics), request_timeout=wait_s))


def _error(future: Any) -> str:
    try:
        future.result(_TIMEOUT_S)
    except KafkaException as error:
        return str(error.args[0].name())
    return ""
