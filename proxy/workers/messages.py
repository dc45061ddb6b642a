"""The messages between the supervisor and its workers; `link` carries them.

Quota tables and alterations are pickled. Both ends are processes of one program, and no other process can
write to the link, which is a pair of connected sockets without a name.
"""

from __future__ import annotations

import copyreg
import pickle
from typing import Final, TypeAlias

import msgspec

from weir.proxy.config.settings import Settings
from weir.proxy.control.peers import Peers, WantedPeers
from weir.proxy.control.snapshots.connections import ConnectionFilter
from weir.proxy.control.snapshots.records import Connections
from weir.proxy.net.tls.contexts import FileContents
from weir.proxy.workers.charges import LimiterCharge
from weir.quotas import Entity
from weir.quotas.costs.request_costs import Overrides
from weir.quotas.topic_counts import TopicGrowth
from weir.usage import TraceRecord, UsageRecord


def _reduced(entity: Entity) -> tuple[type[Entity], tuple[object, ...]]:
    alone = entity.ip, entity.topic, entity.group, entity.topic_prefix
    return Entity, (entity.user, entity.client_id, *alone)


copyreg.pickle(Entity, _reduced)  # a frozen class that mypyc has compiled cannot be unpickled otherwise


class Start(msgspec.Struct, tag=True, frozen=True):
    """The first message to a worker."""

    settings: Settings
    costs: Overrides
    """Request costs that the supervisor has read from `request_costs`."""
    tls: list[FileContents | None]
    """Files in force of each context of `TlsRules.files`; None for a context to make of the present files."""
    connections: int
    """Number of the worker's first connection, minus one. No two processes have connections of one number."""
    own_client_id: str
    workers: int
    """Number of workers."""


class TlsFiles(msgspec.Struct, tag=True, frozen=True):
    """Changed TLS files: those in force of each context, as in `Start`."""

    tls: list[FileContents | None]


class QuotasInForce(msgspec.Struct, tag=True, frozen=True):
    """The quota table in force."""

    pickled: bytes
    in_shadow: bool
    """True if every entry is a shadow entry."""


class QuotasChanged(msgspec.Struct, tag=True, frozen=True):
    """Changes of the quota table in force, or a part of them."""

    pickled: bytes
    """A `QuotaDelta`."""
    in_shadow: bool
    """True if every entry is a shadow entry."""
    is_last: bool
    """True if this part is the last one: the changes of all parts come into force together."""


class BrokerAddresses(msgspec.Struct, tag=True, frozen=True):
    """Known brokers, and addresses that lead to no broker."""

    brokers: list[tuple[int, str, int]]
    """(node id, host, port)."""
    is_single: bool = False
    """True if the cluster has listed one broker."""
    misdirected: list[tuple[str, int, str]] = []
    """(host, port, reason)."""
    listening: list[tuple[str, int]] = []
    """(IP address, port) of Weir's listening sockets."""


class Listen(msgspec.Struct, tag=True, frozen=True):
    """Accept the clients of a listener, whose sockets come with the message."""

    node_id: int | None
    """Node id of the broker to which the connections go; None for any broker."""
    is_replication: bool
    sockets: int
    """Number of sockets."""


class Accept(msgspec.Struct, tag=True, frozen=True):
    """Accept clients, or none: they wait in the kernel's queues then."""

    accepts: bool


class ConnectionsChanged(msgspec.Struct, tag=True, frozen=True):
    """Connections that clients have opened and closed at another process, by their addresses."""

    opened: list[str]
    closed: list[str]


class Charges(msgspec.Struct, tag=True, frozen=True):
    """Units that clients have used at another process."""

    charges: list[LimiterCharge]


class ReplicationThrottled(msgspec.Struct, tag=True, frozen=True):
    """The replication throttles in force, and the ids of the topics that they name."""

    pickled: bytes
    """The values of a `ReplicationThrottles`, and a dict: topic id → name."""


class UnknownTopic(msgspec.Struct, tag=True, frozen=True):
    """A follower has fetched a topic by an id whose name is not known."""


class ReplicasSeen(msgspec.Struct, tag=True, frozen=True):
    """Progress of throttled replicas at another process."""

    pickled: bytes
    """A list of pairs of a `Replica` and its `ProgressState`."""


class OthersUsed(msgspec.Struct, tag=True, frozen=True):
    """Units that clients of other Weirs have used."""

    charges: list[tuple[int, list[tuple[int, float, int, bool]]]]
    """(Number of the limiter, [(age in ms, units, number of Weirs, and if they are late, as in
    `others.Charge`)]). Units of request time are µs.
    """


class SharingState(msgspec.Struct, tag=True, frozen=True):
    """The state of hearing other Weirs: if their reports get through, and since when they do not."""

    sight: str
    """Value of a `quotas.sharing.blindness.Sight`."""
    weirs: int
    blind_ms: int
    """Time (ms) since reports got through; 0 while they do."""


class SettingsChanged(msgspec.Struct, tag=True, frozen=True):
    """Settings that have changed while Weir runs; the other settings are those of the start."""

    settings: Settings


class TakeUsage(msgspec.Struct, tag=True, frozen=True):
    """Send usage records of the interval that ends now."""

    time_ms: int
    """Unix time (ms) of the interval's beginning."""
    interval_ms: int
    instance: str


class TakeTraces(msgspec.Struct, tag=True, frozen=True):
    """Send the traces of requests that are complete."""

    offset_ms: int
    """Time (ms) that turns times of the reactor's clock into ms since 1970."""
    instance: str


class ListConnections(msgspec.Struct, tag=True, frozen=True):
    """List open connections."""

    number: int
    filter: ConnectionFilter


class EndWaits(msgspec.Struct, tag=True, frozen=True):
    """End the throttles of these connections, as far as present usage and limits allow."""

    number: int
    filter: ConnectionFilter


class ListPeers(msgspec.Struct, tag=True, frozen=True):
    """Count the open connections of entities."""

    number: int
    wanted: WantedPeers


class Drain(msgspec.Struct, tag=True, frozen=True):
    """Close each connection once its requests are answered, and end."""


class Flush(msgspec.Struct, tag=True, frozen=True):
    """Send all charges and connections now, and then answer with `Flushed`."""

    number: int


class Altered(msgspec.Struct, tag=True, frozen=True):
    """The end of an alteration of quotas."""

    number: int
    error: str | None


class Ready(msgspec.Struct, tag=True, frozen=True):
    """The worker can serve clients."""


class Flushed(msgspec.Struct, tag=True, frozen=True):
    """The answer to `Flush`, with its number: all charges and connections were sent."""

    number: int


class WorkerReport(msgspec.Struct, tag=True, frozen=True):
    """Sign of life, with the increase of the worker's counters since the last report."""

    pickled: bytes
    """A `counts.WorkerCounts`."""


class BrokerFound(msgspec.Struct, tag=True, frozen=True):
    """A response has named a broker that the worker did not know, or another address of a broker."""

    node_id: int
    host: str
    port: int


class BrokerReached(msgspec.Struct, tag=True, frozen=True):
    """A broker was reached, or could not be reached."""

    node_id: int
    failure: str | None


class UsageRecords(msgspec.Struct, tag=True, frozen=True):
    """Usage records and traces."""

    usage: list[UsageRecord]
    traces: list[TraceRecord]
    traces_dropped: int = 0
    """Number of further traces that were dropped."""
    rest: bool = False
    """True for what a draining worker sends unasked: the supervisor is to set times and instance."""


class ConnectionsListed(msgspec.Struct, tag=True, frozen=True):
    """The answer to `ListConnections`, with its number."""

    number: int
    connections: Connections


class WaitsEnded(msgspec.Struct, tag=True, frozen=True):
    """The answer to `EndWaits`, with its number: the number of connections whose throttle ends earlier."""

    number: int
    connections: int


class PeersListed(msgspec.Struct, tag=True, frozen=True):
    """The answer to `ListPeers`, with its number: the peers of each entity, in the same order."""

    number: int
    peers: list[Peers]


class Alter(msgspec.Struct, tag=True, frozen=True):
    """A client alters quotas, or replication throttles."""

    number: int
    pickled: bytes
    replication: bool
    who: str
    peer: str


class CountTopics(msgspec.Struct, tag=True, frozen=True):
    """A client creates topics, or adds partitions to them: may it?"""

    number: int
    wanted: list[TopicGrowth]
    validate_only: bool


class TopicsCounted(msgspec.Struct, tag=True, frozen=True):
    """The answer to `CountTopics`, with its number."""

    number: int
    reasons: list[str]
    """For each topic the reason why it is refused; empty if it is admitted."""


class TopicsChanged(msgspec.Struct, tag=True, frozen=True):
    """Topics were created, changed or deleted; or were not, although they counted as being created."""

    sizes: dict[str, int | None]
    """Topic → number of its partitions, or another result (`TopicCounts.settle`)."""
    now_ms: int = 0
    sent_ms: int = 0


class AlteredAtBroker(msgspec.Struct, tag=True, frozen=True):
    """A broker has answered an alteration that the worker has forwarded."""


class Denied(msgspec.Struct, tag=True, frozen=True):
    """Further requests about quotas were denied, because their clients are no admins."""

    count: int


class Drained(msgspec.Struct, tag=True, frozen=True):
    """The worker has closed all connections and sent all messages; it ends once the supervisor has read
    them and ended the link.
    """


class Pickled(msgspec.Struct, tag=True, frozen=True):
    """A message with a name that UTF-8 cannot encode: a JSON token may contain half a surrogate pair."""

    pickled: bytes


Message: TypeAlias = (
    Start
    | TlsFiles
    | QuotasInForce
    | QuotasChanged
    | BrokerAddresses
    | Listen
    | Accept
    | ConnectionsChanged
    | Charges
    | ReplicationThrottled
    | UnknownTopic
    | ReplicasSeen
    | OthersUsed
    | SharingState
    | SettingsChanged
    | TakeUsage
    | TakeTraces
    | ListConnections
    | EndWaits
    | ListPeers
    | Drain
    | Flush
    | Altered
    | Ready
    | Flushed
    | WorkerReport
    | BrokerFound
    | BrokerReached
    | UsageRecords
    | ConnectionsListed
    | WaitsEnded
    | PeersListed
    | Alter
    | CountTopics
    | TopicsCounted
    | TopicsChanged
    | AlteredAtBroker
    | Denied
    | Drained
)
_DECODER: Final[msgspec.msgpack.Decoder[Message | Pickled]] = msgspec.msgpack.Decoder(Message | Pickled)


def encoded(message: Message) -> bytes:
    try:
        return msgspec.msgpack.encode(message)
    except UnicodeEncodeError:
        return msgspec.msgpack.encode(Pickled(pickle.dumps(message)))


def decoded(data: bytes) -> Message:
    """Return the message with these bytes. Raises msgspec.DecodeError."""
    found = _DECODER.decode(data)
    if isinstance(found, Pickled):
        message: Message = pickle.loads(found.pickled)  # noqa: S301  # ours
        return message
    return found
