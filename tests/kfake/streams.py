"""A coordinator of streams groups (KIP-1071), which creates their internal topics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.kfake.controller import Controller
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

MISSING_SOURCE: Final = 1
MISSING_INTERNAL: Final = 3
SOURCE: Final = "source"


@dataclass(kw_only=True)
class StreamsBroker(Controller):
    """A controller that is a coordinator of streams groups, as brokers are from 4.1 on."""

    groups: dict[str, StreamsGroupHeartbeatRequest.Topology] = field(default_factory=dict)
    describes: bool = True
    """Whether the client may describe groups."""
    detail: str = "Internal topics are missing: {}"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.handlers[ApiKey.STREAMS_GROUP_HEARTBEAT] = self._heartbeat
        self.handlers[ApiKey.STREAMS_GROUP_DESCRIBE] = self._describe

    def _heartbeat(
        self, asked: StreamsGroupHeartbeatRequest, _version: int, _now_ms: int
    ) -> StreamsGroupHeartbeatResponse:
        if asked.topology is not None:
            self.groups[asked.group_id] = asked.topology
        told = StreamsGroupHeartbeatResponse(member_id=asked.member_id, member_epoch=1)
        status = StreamsGroupHeartbeatResponse.Status
        if SOURCE not in self.topics:
            told.status = [status(status_code=MISSING_SOURCE, status_detail="Source topics are missing")]
            return told
        missing = {
            info.name: info.partitions or self.topics[SOURCE].partitions
            for each in self.groups[asked.group_id].subtopologies
            for info in (*each.state_changelog_topics, *each.repartition_source_topics)
            if info.name not in self.topics
        }
        if missing:
            detail = self.detail.format(", ".join(missing))
            told.status = [status(status_code=MISSING_INTERNAL, status_detail=detail)]
        if self.creates:
            for name, partitions in missing.items():
                self.add(name, partitions)
        return told

    def _describe(
        self, asked: StreamsGroupDescribeRequest, _version: int, _now_ms: int
    ) -> StreamsGroupDescribeResponse:
        described = StreamsGroupDescribeResponse
        groups = [described.DescribedGroup(group_id=group_id, error_code=30) for group_id in asked.group_ids]
        for group in groups if self.describes else ():
            group.error_code = 0
            group.topology = described.Topology(
                subtopologies=[
                    described.Subtopology(
                        state_changelog_topics=[
                            described.TopicInfo(name=info.name) for info in each.state_changelog_topics
                        ],
                        repartition_source_topics=[
                            described.TopicInfo(name=info.name, partitions=info.partitions)
                            for info in each.repartition_source_topics
                        ],
                    )
                    for each in self.groups[group.group_id].subtopologies
                ]
            )
        return described(groups=groups)
