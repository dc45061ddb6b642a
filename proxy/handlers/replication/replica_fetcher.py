"""The replica fetches of one connection: a follower fetches from the leader behind the connection.

While no replica is throttled, fetches pass unread. A fetch session that began before is restarted when the
first replica is throttled, and whenever other replicas are: Weir answers FETCH_SESSION_ID_NOT_FOUND, and the
follower begins a new session with a full fetch, which names all partitions. So Weir knows a session from its
beginning, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import FetchRequest, FetchResponse
from weir.proxy.handlers.broker_query import BrokerQuery, ask
from weir.proxy.handlers.decisions import Decision, Forward, Hold, Query
from weir.proxy.handlers.replication.fetched_bytes import FetchedBytes
from weir.proxy.handlers.replication.fetched_replicas import (
    FIRST_VERSION_WITH_WHOLE_BATCHES,
    FetchedReplica,
    Key,
    LeaderAndFollower,
    choose,
)
from weir.proxy.handlers.replication.replica_session import ReplicaSession, identified, identity
from weir.proxy.handlers.replication.replication import Replication

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import Context
    from weir.proxy.handlers.replication.incoming_fetch import IncomingFetch

EXEMPT: Final = Forward(exempt=True)
FIRST_VERSION_WITH_SESSIONS: Final = 7
"""First version of Fetch with fetch sessions (KIP-227)."""
POLL_MS: Final = 50
"""Least time (ms) for which a leader waits for records of the other partitions, while replicas that are held
back wait for their budgets.
"""
WHOLE_BYTES_MAX: Final = 1024 * 1024
"""Limit (bytes) of the records in a response that Weir completes, or removes records from. Weir reads
such a response as a whole.
"""


class ReplicaFetches:
    """State of a connection for `fetches`."""

    __slots__ = ("fetcher",)

    def __init__(self, fetcher: ReplicaFetcher | None = None) -> None:
        """Begin without a fetch. `fetcher`: None if the connection is not at a replication listener."""
        self.fetcher = fetcher


class ReplicaFetcher:
    """The state of one connection at a replication listener."""

    __slots__ = ("_answer_by_ms", "_leader", "_replication", "_session")

    def __init__(self, replication: Replication, leader: int) -> None:
        """Begin without a fetch. `leader` is the node id of the broker behind the connection."""
        self._replication = replication
        self._leader = leader
        self._session: ReplicaSession | None = None
        self._answer_by_ms: int | None = None
        """Time (ms) at which a fetch must be answered that waits because all its partitions are held back;
        None if no fetch waits.
        """

    @property
    def reads(self) -> bool:
        """True if fetches must be read, because replicas are throttled, or were at the latest fetch."""
        active = self._replication.is_active or self._session is not None
        return active or self._answer_by_ms is not None

    def decide(self, context: Context, fetch: IncomingFetch, request: FetchRequest) -> Decision:
        """Return the decision about a complete replica fetch."""
        is_full = fetch.version < FIRST_VERSION_WITH_SESSIONS or request.session_epoch <= 0
        answer_by_ms, self._answer_by_ms = self._answer_by_ms, None
        if answer_by_ms is None:
            answer_by_ms = context.now_ms + request.max_wait_ms
        left_ms = max(answer_by_ms - context.now_ms, 0)
        if is_full:
            self._session = None
            if not self._replication.is_active:
                if left_ms == request.max_wait_ms:
                    return EXEMPT
                return fetch.forward(replace(request, max_wait_ms=left_ms))
            pair = LeaderAndFollower(self._leader, _follower(request))
            session = ReplicaSession(self._replication, pair, fetch.version)
        elif (known := self._known(request, fetch.version)) is None:
            self._session = None
            return fetch.reply(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        else:
            session = known
        return self._limited(context, fetch, request, session, left_ms, is_full=is_full)

    def _known(self, request: FetchRequest, version: int) -> ReplicaSession | None:
        """Return the session that an incremental fetch continues; None if Weir does not know the session, or
        has divided its partitions by throttles that are no longer in force. A session keeps its version,
        because versions name topics differently.
        """
        session = self._session
        if session is None or not self._replication.is_active:
            return None
        asked = request.session_id, request.session_epoch, version
        same = (session.id, session.epoch, session.version) == asked
        return session if same and session.generation == self._replication.generation else None

    def _limited(
        self,
        context: Context,
        fetch: IncomingFetch,
        request: FetchRequest,
        session: ReplicaSession,
        left_ms: int,
        *,
        is_full: bool,
    ) -> Decision:
        """Return the decision to forward a fetch without the partitions that are held back, or to hold it.
        `left_ms` is the time (ms) in which the follower must have its response.
        """
        now_ms = context.now_ms
        session.read(request, now_ms)
        wait_ms = choose(
            session.replicas.values(),
            enforced=self._replication.quotas.enforced,
            cut=fetch.version >= FIRST_VERSION_WITH_WHOLE_BATCHES,
            now_ms=now_ms,
        )
        unseen = _unseen(session) if wait_ms < math.inf else {}
        if not session.has_partitions_to_ask_for and not unseen:
            if left_ms > 0:
                self._answer_by_ms = now_ms + left_ms
                return Hold(max(int(min(left_ms, wait_ms)), 1), first=False)
            session.answered(by_leader=False)
            response = FetchResponse(session_id=0 if is_full else request.session_id)
            return fetch.reply(_completed(response, session) if is_full else response)
        named, max_wait_ms = request, int(min(left_ms, max(wait_ms, POLL_MS)))
        if max_wait_ms < request.max_wait_ms:
            request = replace(request, max_wait_ms=max_wait_ms)
        if unseen or (is_full and wait_ms < math.inf):
            return Query(self._whole(context, request, session, unseen, is_full=is_full))
        changed = session.request_for_leader(request)
        if not is_full:
            session.answered(by_leader=True)
        elif fetch.version >= FIRST_VERSION_WITH_SESSIONS:
            self._session = session
        counter = FetchedBytes(context, session, self._answered)
        return fetch.forward(None if changed == named else changed, counter)

    def _whole(
        self,
        context: Context,
        request: FetchRequest,
        session: ReplicaSession,
        unseen: Mapping[Key, FetchedReplica],
        *,
        is_full: bool,
    ) -> BrokerQuery:
        """Answer a fetch while some of its partitions are held back. A follower discards a response to a full
        fetch that lacks a partition, so Weir adds the partitions that it did not ask for, without records.
        (Since Kafka 1.1, followers do so with versions before fetch sessions, too.)

        The leader is asked for `unseen` partitions, because their high watermark is not known, but their
        records are removed. If a replica is in sync, it is not held back any more.
        """
        version = session.version
        for replica in unseen.values():
            replica.is_held_back, replica.max_bytes = False, 1
        changed = session.request_for_leader(request)
        for replica in unseen.values():
            replica.is_held_back = True
        changed = replace(changed, max_bytes=min(request.max_bytes, WHOLE_BYTES_MAX))
        if not is_full:
            session.answered(by_leader=True)
        response = yield from ask(changed, version, FetchResponse)
        counter = FetchedBytes(context, session, self._answered)
        for topic in response.responses:
            name = identity(topic, version)
            for data in topic.partitions:
                replica_or_none = session.replicas.get((name, data.partition_index))
                if replica_or_none is not None and replica_or_none.is_held_back:
                    data.records = b""
                size = len(data.records or b"")
                counter.note(name, data.partition_index, data.error_code, data.high_watermark, size)
        self._session = session
        self._answered(response.error_code, response.session_id)
        return _completed(response, session) if is_full and not response.error_code else response

    def _answered(self, error_code: int, session_id: int) -> None:
        """Note the error code and the session id in a response of the leader. A session without id has ended,
        or was never made.
        """
        if self._session is not None:
            self._session.id = session_id
            if error_code or not session_id:
                self._session = None


def _follower(request: FetchRequest) -> int:
    """Return the node id of the broker that fetches."""
    return request.replica_id if request.replica_id >= 0 else request.replica_state.replica_id


def _unseen(session: ReplicaSession) -> dict[Key, FetchedReplica]:
    """Return the replicas that are held back and whose high watermark is not known."""
    return {
        key: replica
        for key, replica in session.replicas.items()
        if replica.is_held_back and replica.progress.high_watermark < 0
    }


def _completed(response: FetchResponse, session: ReplicaSession) -> FetchResponse:
    """Return the response to a full fetch, with the partitions that are held back and missing in it. Their
    high watermark is that of the latest response, and their log start offset the follower's own, so that the
    follower changes nothing.
    """
    version = session.version
    present = {
        (identity(topic, version), data.partition_index)
        for topic in response.responses
        for data in topic.partitions
    }
    missing: dict[bytes, list[FetchResponse.PartitionData]] = {}
    for (topic, partition), replica in session.replicas.items():
        if replica.is_held_back and (topic, partition) not in present:
            data = FetchResponse.PartitionData(
                partition_index=partition,
                high_watermark=replica.progress.high_watermark,
                last_stable_offset=replica.progress.high_watermark,
                log_start_offset=replica.asked.log_start_offset,
                records=b"",
            )
            missing.setdefault(topic, []).append(data)
    response.responses += [
        FetchResponse.FetchableTopicResponse(**identified(topic, version), partitions=partitions)
        for topic, partitions in missing.items()
    ]
    return response
