"""Prepares the target for the jobs: records to fetch, topics to delete, and quotas in force."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from weir.conformance.probe.link import ConversationError
from weir.conformance.probe.quotas import bandwidth, mutations, request_time, requests, table
from weir.conformance.probe.quotas.client import ProbeClient
from weir.conformance.probe.quotas.jobs import ClientQuota
from weir.conformance.probe.quotas.waiting import until
from weir.conformance.probe.scratch import UnusableError
from weir.conformance.quota_names import MUTATION, REQUEST
from weir.protocol.api import ApiKey
from weir.protocol.messages import MetadataResponse
from weir.protocol.values import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weir.conformance.probe.quotas.client import BrokerEndpoint
    from weir.conformance.probe.quotas.jobs import Stage

RECORD_BYTES: Final = 900
RECORDS: Final = 20
READY_S: Final = 30.0
METADATA_MAX: Final = 12
"""Newest version of Metadata that is used: all that have topic ids are alike."""
_IDS_IN_METADATA: Final = 10


def check_alters(stage: Stage, alters: bool) -> None:
    """Raise UnusableError if quotas must be set, and the target cannot set them."""
    if alters and not stage.of(ApiKey.ALTER_CLIENT_QUOTAS):
        raise UnusableError(
            "the target has no AlterClientQuotas (brokers have it from 2.6 on): set the quotas of "
            "--list-quotas, and name their run with --quotas-set"
        )


@contextmanager
def prepared(
    stage: Stage,
    alters: bool,
    quotas: Sequence[ClientQuota],
    notes: list[str],
    further_topics: Sequence[str] = (),
) -> Iterator[None]:
    """Write records, create topics, and set quotas if `alters`. In the end, delete the topics and remove the
    quotas. `notes`: gets lines about what could not be done. `further_topics`: besides those of the jobs.
    Raises UnusableError, ConversationError.
    """
    mutates = any(quota.key == MUTATION for quota in quotas)
    canary = ClientQuota(stage.prefix + "canary", REQUEST, request_time.PERCENT)
    with ProbeClient(stage.leader, stage.prefix + "fill") as client:
        _fill(client, stage)
    try:
        if mutates:
            _create(stage, mutations.topics(stage) | dict.fromkeys(further_topics, 1))
        if alters:
            _alter(stage, [*quotas, canary], remove=False)
            notes.extend(_missing(stage, canary.client_id))
        yield
    finally:
        if alters:
            try:
                _alter(stage, [*quotas, canary], remove=True)
            except (UnusableError, ConversationError) as error:
                notes.append(f"the quotas of client-ids {stage.prefix}* are still set: {error}")
        if mutates:
            _delete(stage, [*mutations.leftovers(stage), *further_topics], notes)


def stage_of(bare: Stage, topic: str) -> Stage:
    """Add the leader and the id of a topic, and the controller. Raises UnusableError, ConversationError."""
    endpoint, version = bare.leader, min(bare.of(ApiKey.METADATA).max, METADATA_MAX)
    found: list[Stage] = []

    def ready() -> bool:
        with ProbeClient(endpoint, bare.prefix + "admin") as client:
            answer = client.ask(requests.metadata(version, [topic]), ApiKey.METADATA, version).message
        assert isinstance(answer, MetadataResponse)
        at = {
            each.node_id: msgspec.structs.replace(
                endpoint, target=msgspec.structs.replace(endpoint.target, host=each.host, port=each.port)
            )
            for each in answer.brokers
        }
        leader = [
            part.leader_id for each in answer.topics for part in each.partitions if part.partition_index == 0
        ]
        if not leader or leader[0] not in at or answer.controller_id not in at:
            return False
        topic_id = answer.topics[0].topic_id if version >= _IDS_IN_METADATA else ZERO_UUID
        found.append(
            msgspec.structs.replace(
                bare,
                leader=at[leader[0]],
                controller=at[answer.controller_id],
                topic=topic,
                topic_id=topic_id,
            )
        )
        return True

    if not until(ready, READY_S):
        raise UnusableError(f"{topic} has no partition 0 with a leader, or the cluster has no controller")
    return found[0]


def _alter(stage: Stage, quotas: Sequence[ClientQuota], *, remove: bool) -> None:
    version = stage.of(ApiKey.ALTER_CLIENT_QUOTAS).max
    with ProbeClient(stage.controller, stage.prefix + "admin") as client:
        try:
            table.alter(client, version, quotas, remove=remove)
        except table.AlterError as error:
            raise UnusableError(f"the target refuses to alter quotas: {error}") from None


def _missing(stage: Stage, client_id: str) -> list[str]:
    """Wait until a request of the canary is throttled, whose quota was set last. A target that does not
    enforce quotas never comes so far, and its checks fail. Return lines for the user.
    """
    if stage.of(ApiKey.METADATA).max < table.THROTTLED_METADATA:
        return []
    lines = []
    for endpoint in {
        (each.target.host, each.target.port): each for each in (stage.leader, stage.controller)
    }.values():
        if not _in_force(endpoint, client_id):
            where = f"{endpoint.target.host}:{endpoint.target.port}"
            lines.append(f"no quota was in force at {where} {table.IN_FORCE_S:g} s after it was set")
    return lines


def _in_force(endpoint: BrokerEndpoint, client_id: str) -> bool:
    return until(lambda: table.throttle_ms(endpoint, client_id) > 0, table.IN_FORCE_S)


def _create(stage: Stage, topics: dict[str, int]) -> None:
    if not topics:
        return
    version = stage.of(ApiKey.CREATE_TOPICS).max
    reading = min(stage.of(ApiKey.METADATA).max, METADATA_MAX)
    with ProbeClient(stage.controller, stage.prefix + "admin") as client:
        client.ask(requests.create_topics(topics), ApiKey.CREATE_TOPICS, version)

        def there() -> bool:
            answer = client.ask(requests.metadata(reading, topics), ApiKey.METADATA, reading).message
            assert isinstance(answer, MetadataResponse)
            return all(not topic.error_code and topic.partitions for topic in answer.topics)

        if not until(there, READY_S):
            raise UnusableError(
                f"the topics {stage.prefix}* were not there {READY_S:g} s after their creation"
            )


def _delete(stage: Stage, topics: list[str], notes: list[str]) -> None:
    version = stage.of(ApiKey.DELETE_TOPICS).max
    try:
        with ProbeClient(stage.controller, stage.prefix + "admin") as client:
            request = requests.delete_topics(version, topics)
            client.ask(request, ApiKey.DELETE_TOPICS, version)
    except ConversationError as error:
        notes.append(f"topics {stage.prefix}* may be left: {error}")


def _fill(client: ProbeClient, stage: Stage) -> None:
    version = stage.of(ApiKey.PRODUCE).max
    request = requests.produce(version, stage.topic, stage.topic_id, RECORD_BYTES)
    errors: list[int] = []

    def written() -> bool:
        errors[:] = bandwidth.errors_of(client.ask(request, ApiKey.PRODUCE, version))
        return not errors

    for _ in range(RECORDS):
        # The controller may name a leader before that broker knows it.
        if not until(written, READY_S):
            raise UnusableError(f"records cannot be written to {stage.topic}: error code {errors[0]}")
