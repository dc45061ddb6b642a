"""Scripts whose next request depends on responses: group members, fetch sessions."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Final, TypeVar

from bench.request_time.book import NEW_SESSION, Book
from bench.request_time.calls import Call, Script
from bench.request_time.topics import EMPTY
from weir.protocol import ApiKey, ErrorCode, Message
from weir.protocol.messages import (
    FetchResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)

M = TypeVar("M", bound=Message)

HEARTBEATS: Final = 5
"""Number of heartbeats that a member sends before it leaves the group."""
METADATA_BYTES: Final = 60
"""Size (bytes) of a member's subscription and of its assignment, about as in a real consumer."""
_SERIAL: Final = count()
"""Numbers that make the names of groups and topics unique."""
_MANY_LEAVE: Final = 3
"""First version of LeaveGroup that can name several members."""


def read(call: Call, frame: bytes, kind: type[M]) -> M:
    """Decode the response to a call. Raises ProtocolError."""
    answer = call.response(frame)
    assert isinstance(answer, kind)
    return answer


def membership(book: Book, client: str, group: str) -> Script:
    """Join a group as its only member, get the assignment, send heartbeats, and leave; repeat without end."""
    broker_versions, group = book.broker_versions, f"{group}-{next(_SERIAL)}"
    while True:
        member = ""
        while True:
            call = broker_versions.call(client, _join(group, member))
            joined = read(call, (yield call), JoinGroupResponse)
            member = joined.member_id
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
        generation = joined.generation_id
        yield broker_versions.call(client, _sync(group, member, generation))
        for _ in range(HEARTBEATS):
            yield book.heartbeat(client, group, member, generation)
        yield broker_versions.call(client, _leave(group, member, broker_versions.version(ApiKey.LEAVE_GROUP)))


def _join(group: str, member: str) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(METADATA_BYTES))
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[protocol],
    )


def _sync(group: str, member: str, generation: int) -> SyncGroupRequest:
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(
        member_id=member, assignment=bytes(METADATA_BYTES)
    )
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )


def _leave(group: str, member: str, version: int) -> LeaveGroupRequest:
    if version < _MANY_LEAVE:
        return LeaveGroupRequest(group_id=group, member_id=member)
    return LeaveGroupRequest(group_id=group, members=[LeaveGroupRequest.MemberIdentity(member_id=member)])


def fetch_session(book: Book, client: str, partitions: int, *, rest: str, max_wait_ms: int = 0) -> Script:
    """Begin a fetch session with this number of empty partitions, as the client `rest`; then send fetches in
    this session as `client`.

    The later requests do not list the partitions, but the broker still handles all of them. Their feature
    `us_per_session_kb` is the size (kB) by which they are smaller than the first request.
    """
    indexes = range(partitions)
    call = book.fetch(rest, EMPTY, indexes, session=(0, NEW_SESSION), max_wait_ms=0)
    listed_kb = call.known["us_per_request_kb"]
    session_id = read(call, (yield call), FetchResponse).session_id
    for epoch in count(1):
        more = book.fetch(client, EMPTY, (), session=(session_id, epoch), max_wait_ms=max_wait_ms)
        shorter_kb = listed_kb - more.known["us_per_request_kb"]
        yield replace(more, known={**more.known, "us_per_session_kb": shorter_kb})
