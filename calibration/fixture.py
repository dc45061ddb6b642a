"""Create the calibrator's topic and group at the broker before the measurement, and delete them after it.

The names of topics begin with `__weir_calibrate_`, those of groups and client-ids with `weir-calibrate-`. By
these names, a run recognizes topics and quotas that a killed run left behind.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import trio

from weir.calibration.broker_connection import CalibrationError
from weir.calibration.cases import PARTITIONS, OwnResources, filling
from weir.calibration.frames import Request, error_codes
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from weir.quotas.costs.calibration import Windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weir.calibration.broker_connection import BrokerConnection
    from weir.calibration.frames import NodeApiVersions
    from weir.protocol.values import Message

CLIENT_ID_START: Final = "weir-calibrate-"
TOPIC: Final = re.compile(r"__weir_calibrate_[0-9a-f]{8}")
TOPIC_SETTINGS: Final = {
    "cleanup.policy": "delete",
    "min.insync.replicas": "1",
    "segment.bytes": str(16 << 20),
    "retention.bytes": str(32 << 20),
    "max.message.bytes": "1048588",
}
_BROKER_RESOURCE: Final = 4
_WINDOW_KEYS: Final = ("quota.window.num", "quota.window.size.seconds")
_SETTLE_S: Final = 15.0
_STEP_S: Final = 0.1
_GROUP_NAMES: Final = 400
_SESSION_MS: Final = 60_000
_METADATA_BYTES: Final = bytes(60)
_GONE: Final = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_NO_GROUP: Final = frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})


class Fixture:
    """The topic and the group that the calibration creates at one broker. Call `clear` at the end, also after
    a failure.
    """

    def __init__(
        self, connection: BrokerConnection, broker_versions: NodeApiVersions, run: str, now_ms: int
    ) -> None:
        """Keep the arguments; `run` is the id of this run, eight hexadecimal digits, and `now_ms` the
        timestamp of all records. Send nothing.
        """
        self._connection = connection
        self._broker_versions = broker_versions
        self._now_ms = now_ms
        self.own = OwnResources(f"__weir_calibrate_{run}", f"{CLIENT_ID_START}{run}")
        self.node_id = -1
        self.windows = Windows()
        self._topics: list[str] = []
        self._group = ""

    def _request(self, message: Message) -> Request:
        """Encode a request in the newest version that the broker and Weir share. Raises CalibrationError if
        they share none.
        """
        request = self._broker_versions.request(message)
        if request is None:
            raise CalibrationError(
                f"{self._connection.address}: broker and Weir share no version of {type(message).__name__}"
            )
        return request

    # Queries that change nothing

    async def look(self) -> list[str]:
        """Query the broker's node id and quota windows, and keep them in `node_id` (-1 if unknown) and
        `windows`. Return the topics that an earlier run left behind. Raises QuestionError, CalibrationError.
        """
        answer = await self._connection.ask(self._request(MetadataRequest(topics=None)), MetadataResponse)
        brokers = answer.brokers
        self.node_id = -1
        for broker in brokers:
            settings = await self._broker_settings(broker.node_id)
            if settings is not None:
                self.node_id = broker.node_id
                num, size_s = (settings.get(key) or "" for key in _WINDOW_KEYS)
                if num.isdecimal() and size_s.isdecimal():
                    self.windows = Windows(int(num), int(size_s))
                break
        if self.node_id < 0:  # no broker has shown its settings: Weir's user lacks the right
            here = [b.node_id for b in brokers if (b.host, b.port) == self._connection.address]
            self.node_id = (here or [brokers[0].node_id])[0] if here or len(brokers) == 1 else -1
        return [topic.name for topic in answer.topics if topic.name and TOPIC.fullmatch(topic.name)]

    async def _broker_settings(self, node_id: int) -> dict[str, str | None] | None:
        """Return the broker's settings of the window over which it averages rates. Return None if the broker
        denies access, or if `node_id` is another broker's: a broker describes only its own settings.
        """
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=list(_WINDOW_KEYS)
        )
        request = self._broker_versions.request(DescribeConfigsRequest(resources=[resource]))
        if request is None:
            return None
        answer = await self._connection.ask(request, DescribeConfigsResponse)
        found = [result for result in answer.results if result.error_code == ErrorCode.NONE]
        return {entry.name: entry.value for entry in found[0].configs} if found else None

    # Creating

    async def make_topic(self) -> None:
        """Create the topic with all replicas at this broker, and write the records that the measured fetch
        requests read. Call `look` before. Raises CalibrationError if the node id is unknown or the broker
        refuses, QuestionError if the broker does not answer.
        """
        if self.node_id < 0:
            raise CalibrationError(
                f"{self._connection.address}: its node id is unknown: give the host and port that "
                "the brokers' metadata has, or allow Weir's user DESCRIBE_CONFIGS on the cluster"
            )
        assignment = CreateTopicsRequest.CreatableReplicaAssignment
        settings = TOPIC_SETTINGS.items()
        wanted = CreateTopicsRequest.CreatableTopic(
            name=self.own.topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                assignment(partition_index=index, broker_ids=[self.node_id]) for index in range(PARTITIONS)
            ],
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in settings],
        )
        request = self._request(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000))
        self._topics.append(self.own.topic)
        answer = await self._connection.ask(request, CreateTopicsResponse)
        for topic in answer.topics:
            if topic.error_code not in (
                ErrorCode.NONE,
                ErrorCode.TOPIC_ALREADY_EXISTS,
            ):  # `ask` may have sent the request twice
                said = topic.error_message or ErrorCode(topic.error_code).name
                raise CalibrationError(
                    f"{self._connection.address}: it refuses to create the topic for measuring: {said}"
                )
        await self._fill()

    async def _fill(self) -> None:
        deadline_s = trio.current_time() + _SETTLE_S
        for request in filling(self._broker_versions, self.own, self._now_ms):
            while errors := error_codes(await self._connection.ask(request, ProduceResponse)):
                if trio.current_time() > deadline_s:
                    raise CalibrationError(
                        f"{self._connection.address}: {_named(errors)} when writing to the measured topic"
                    )
                await trio.sleep(_STEP_S)

    async def make_group(self) -> str | None:
        """Join a group that this broker coordinates, as its only member. Return None, or the reason if this
        fails. Raises QuestionError.
        """
        name = await self._group_here()
        if name is None:
            return f"none of {_GROUP_NAMES} group ids belongs to this coordinator"
        self._group = name
        self.own = OwnResources(self.own.topic, name)
        return await self._join()

    async def _group_here(self) -> str | None:
        deadline_s = trio.current_time() + _SETTLE_S
        for number in range(_GROUP_NAMES):
            name = f"{self.own.group}-{number}"
            request = self._request(FindCoordinatorRequest(key=name))
            answer = await self._connection.ask(request, FindCoordinatorResponse)
            while (
                answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE and trio.current_time() < deadline_s
            ):
                await trio.sleep(_STEP_S)
                answer = await self._connection.ask(request, FindCoordinatorResponse)
            if answer.error_code != ErrorCode.NONE:
                return None
            if answer.node_id == self.node_id:
                return name
        return None

    async def _join(self) -> str | None:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=_METADATA_BYTES)
        body = JoinGroupRequest(
            group_id=self.own.group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            protocol_type="consumer",
            protocols=[protocol],
        )
        deadline_s = trio.current_time() + _SETTLE_S
        joined = await self._connection.ask(self._request(body), JoinGroupResponse)
        while joined.error_code in _LOADING and trio.current_time() < deadline_s:
            await trio.sleep(_STEP_S)
            joined = await self._connection.ask(self._request(body), JoinGroupResponse)
        if joined.error_code != ErrorCode.NONE:
            return f"joining a group: {_named([joined.error_code])}"
        member, generation = joined.member_id, joined.generation_id
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=_METADATA_BYTES)
        sync = SyncGroupRequest(
            group_id=self.own.group,
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        )
        synced = await self._connection.ask(self._request(sync), SyncGroupResponse)
        if synced.error_code != ErrorCode.NONE:
            return f"joining a group: {_named([synced.error_code])}"
        self.own = OwnResources(self.own.topic, self.own.group, member, generation)
        return None

    # Deleting

    async def clear(self) -> list[str]:
        """Delete the created topic and group; return descriptions of those that the broker did not delete.
        Raises QuestionError if the broker does not answer.
        """
        left = await self.delete_topics(self._topics)
        self._topics = []
        if self._group:
            left += await self._delete_group()
            self._group = ""
        return left

    async def delete_topics(self, names: Sequence[str]) -> list[str]:
        """Delete these topics; return descriptions of those that the broker did not delete. Raises
        QuestionError.
        """
        if not names:
            return []
        request = self._request(DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000))
        answer = await self._connection.ask(request, DeleteTopicsResponse)
        gone = {topic.name for topic in answer.responses if topic.error_code in _GONE}
        return [f"topic {name}" for name in names if name not in gone]

    async def _delete_group(self) -> list[str]:
        """Leave the group, then delete the group, because a broker deletes only empty groups. Return a
        description of the group if the broker does not delete it.
        """
        from weir.protocol.messages import LeaveGroupRequest, LeaveGroupResponse

        name, member = self._group, self.own.member
        if member:
            identity = LeaveGroupRequest.MemberIdentity(member_id=member)
            version = self._broker_versions.version(ApiKey.LEAVE_GROUP)
            many = version is not None and version >= _MANY_LEAVE
            body = (
                LeaveGroupRequest(group_id=name, members=[identity])
                if many
                else LeaveGroupRequest(group_id=name, member_id=member)
            )
            await self._connection.ask(self._request(body), LeaveGroupResponse)
        request = self._broker_versions.request(DeleteGroupsRequest(groups_names=[name]))
        if request is None:
            return []  # an empty group expires by itself
        answer = await self._connection.ask(request, DeleteGroupsResponse)
        failed = [result for result in answer.results if result.error_code not in _NO_GROUP]
        return [f"group {result.group_id}" for result in failed]


_MANY_LEAVE: Final = 3
"""First version of LeaveGroup that can name several members."""
_LOADING: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


def _named(codes: Sequence[int] | set[int]) -> str:
    known = {code.value: code.name for code in ErrorCode}
    return ", ".join(known.get(code, f"error {code}") for code in sorted(codes))
