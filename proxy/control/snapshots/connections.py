"""Records of open connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from weir.proxy.connection.state import OPEN, THROTTLED, State
from weir.proxy.connection.waits import waits_because
from weir.proxy.control.slices import slices
from weir.proxy.control.snapshots.filters import BrokerName, Filter, Text, broker_name
from weir.proxy.control.snapshots.names import shortened
from weir.proxy.control.snapshots.opened import OpenConnection, OpenRelays
from weir.proxy.control.snapshots.records import ConnectionRecord, Connections
from weir.proxy.control.snapshots.sources import SnapshotSources
from weir.proxy.control.throttled import SLICE
from weir.proxy.net.relay import Relay
from weir.quotas.table.groups import QuotaGroups

_Pair: TypeAlias = tuple[Relay, OpenConnection]


class ConnectionFilter(Filter, frozen=True):
    """Choice of connections, and their order."""

    user: Text = ""
    client_id: Text = ""
    group: Text = ""
    """A group that the client is in, also by a parent."""
    broker: BrokerName = ""
    state: Literal["", "OPEN", "THROTTLED", "SERIAL", "AUTHENTICATING", "QUERYING", "DRAINING", "CLOSED"] = ""
    sort: Literal[
        "opened", "in_bytes", "out_bytes", "in_bytes_per_s", "out_bytes_per_s", "in_flight", "waits"
    ] = "opened"
    """`opened` puts the oldest connection first, all others the largest number."""

    def has(self, pair: _Pair, now_ms: int, groups: QuotaGroups) -> bool:
        """Return True if the connection is chosen."""
        relay, opened = pair
        client = relay.connection.client
        wanted = (self.user, self.client_id, self.broker, self.state)
        state = state_of(relay, now_ms).name
        its = (client.user, client.quota_client_id, broker_name(opened.node_id), state)
        if any(want and want != have for want, have in zip(wanted, its, strict=True)):
            return False
        if self.group and self.group not in groups.chain(client.user, client.quota_client_id):
            return False
        q = self.q.casefold()
        texts = (client.user, client.quota_client_id, client.peer, client.software)
        return not q or any(q in text.casefold() for text in texts)


class _Rank(NamedTuple):
    """The functions by whose results connections are sorted, the smallest first."""

    of_open: Callable[[_Pair, int], float]
    """Function (connection, now_ms) for the connections of this process."""
    of_record: Callable[[ConnectionRecord], float]
    """Function for records of several processes: numbers of connections tell no order between these."""


_RANKS: Final = {
    "opened": _Rank(lambda pair, _now_ms: pair[1].id, lambda record: record.opened_ms),
    "in_bytes": _Rank(
        lambda pair, _now_ms: -pair[0].received_bytes[0],
        lambda record: -record.in_bytes,
    ),
    "out_bytes": _Rank(
        lambda pair, _now_ms: -pair[0].received_bytes[1],
        lambda record: -record.out_bytes,
    ),
    "in_bytes_per_s": _Rank(
        lambda pair, _now_ms: -pair[1].rates.in_bytes_per_s,
        lambda record: -record.in_bytes_per_s,
    ),
    "out_bytes_per_s": _Rank(
        lambda pair, _now_ms: -pair[1].rates.out_bytes_per_s,
        lambda record: -record.out_bytes_per_s,
    ),
    "in_flight": _Rank(
        lambda pair, _now_ms: -len(pair[0].connection.in_flight),
        lambda record: -record.in_flight,
    ),
    "waits": _Rank(
        lambda pair, now_ms: -_left_ms(pair[0], now_ms),
        lambda record: -(record.waits_until_ms or 0),
    ),
}
"""Rank by sort order."""


def read_connections(
    sources: SnapshotSources, relays: OpenRelays, wanted: ConnectionFilter
) -> Generator[None, None, Connections]:
    """Return the chosen connections of these. Yield between steps of about a millisecond."""
    now_ms, rank = sources.now_ms(), _RANKS[wanted.sort].of_open
    best: list[tuple[float, int, _Pair]] = []
    number = 0
    for part in slices(list(relays.items()), SLICE // 4):
        found = [pair for pair in part if wanted.has(pair, now_ms, sources.registry.table.groups)]
        number += len(found)
        best += [(rank(pair, now_ms), pair[1].id, pair) for pair in found]
        if len(best) > wanted.limit + SLICE:
            best = sorted(best)[: wanted.limit]
        yield
    records: list[ConnectionRecord] = []
    for _rank, _id, pair in sorted(best)[: wanted.limit]:
        records.append(_record(sources, *pair))
        if len(records) % 100 == 0:
            yield
    hidden = number - len(records)
    return Connections(now_ms=sources.unix_ms(), hidden=hidden, connections=tuple(records))


def merged(lists: Sequence[Connections], wanted: ConnectionFilter, silent: int) -> Connections:
    """Return one list from those of several processes. `silent` is the number of connections of processes
    that have not answered; they count as hidden.
    """
    rank = _RANKS[wanted.sort].of_record
    found = sorted(
        (connection for each in lists for connection in each.connections),
        key=lambda connection: (rank(connection), connection.id),
    )
    kept = tuple(found[: wanted.limit])
    hidden = sum(each.hidden for each in lists) + len(found) - len(kept) + silent
    now_ms = max((each.now_ms for each in lists), default=time.time_ns() // 1_000_000)
    return Connections(now_ms=now_ms, hidden=hidden, connections=kept)


def state_of(relay: Relay, now_ms: int) -> State:
    """Return the state of a connection; OPEN for one whose throttle time is over."""
    connection = relay.connection
    if connection.state == THROTTLED and connection.throttled_until_ms <= now_ms:
        return State(OPEN)
    return State(connection.state)


def _left_ms(relay: Relay, now_ms: int) -> int:
    return max(relay.connection.throttled_until_ms - now_ms, 0)


def _record(sources: SnapshotSources, relay: Relay, opened: OpenConnection) -> ConnectionRecord:
    connection, now_ms = relay.connection, sources.now_ms()
    client, left_ms = connection.client, _left_ms(relay, now_ms)
    in_bytes, out_bytes = relay.received_bytes
    return ConnectionRecord(
        id=opened.id,
        peer=client.peer,
        listener=opened.listener,
        broker=opened.node_id,
        user=shortened(client.user),
        client_id=shortened(client.quota_client_id) or None,
        software=client.software or None,
        mechanism=client.mechanism or None,
        tls=opened.tls,
        state=state_of(relay, now_ms).name,
        waits_for=waits_because(connection, now_ms) or None,
        waits_until_ms=sources.unix_ms(connection.throttled_until_ms) if left_ms else None,
        opened_ms=sources.unix_ms(opened.opened_ms),
        in_bytes=in_bytes,
        out_bytes=out_bytes,
        in_bytes_per_s=opened.rates.in_bytes_per_s,
        out_bytes_per_s=opened.rates.out_bytes_per_s,
        in_flight=len(connection.in_flight),
    )
