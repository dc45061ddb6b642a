"""KIP-1242: clients tell in ApiVersions 5 which cluster and node they expect at their connection. They
bootstrap again if the answer is REBOOTSTRAP_REQUIRED.

Each listener of Weir must be the node that Metadata names for it. A load balancer, or a Weir that was started
with other ports, sends clients to a wrong node. Weir compares node ids itself, so clients of older brokers
find the right port again, too. Brokers from 4.4 on also compare the cluster and their own node id: they get
the request unchanged. Brokers from 2.4 on get the request in the newest version that they have. Their answer
has the layout of version 5, so the client needs no second request. Weir offers version 5 at these brokers,
because some clients (franz-go) ask in the newest version that they were offered before.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from weir.protocol.api import ApiKey
from weir.protocol.codec import codec
from weir.protocol.error_codes import ErrorCode
from weir.protocol.framing import LENGTH, LENGTH_BYTES, REQUEST_HEAD
from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from weir.protocol.versions import VersionRange
from weir.proxy.handlers.broker_query import response_frame
from weir.proxy.handlers.decisions import FORWARD, Decision, Forward, Reply

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import Context

_NODE_FROM: Final = 5
"""First version of ApiVersions with a cluster id and a node id."""
LAYOUT_FROM: Final = 3
"""First version of ApiVersions whose response has the layout of version 5."""
_VERSION: Final = Struct(">h")
_VERSION_OFFSET: Final = LENGTH_BYTES + _VERSION.size


def offered(broker: VersionRange) -> VersionRange:
    """Return the versions of ApiVersions that Weir offers at a broker with the versions `broker`."""
    return VersionRange(broker.min, _NODE_FROM) if LAYOUT_FROM <= broker.max < _NODE_FROM else broker


def decide(
    context: Context, told: ApiVersionsRequest, version: int, data: bytearray, frame: int, body: int
) -> Decision:
    """Return the decision about the complete request `told` in `version`, whose body begins at `data[body]`:
    an error, or the way to the broker.
    """
    error = _error(told, context.node_id)
    if error != ErrorCode.NONE:
        (*_rest, correlation_id) = REQUEST_HEAD.unpack_from(data, frame)
        context.counters.wrong_nodes += error == ErrorCode.REBOOTSTRAP_REQUIRED
        answer = ApiVersionsResponse(error_code=error)
        return Reply(response_frame(ApiKey.API_VERSIONS, version, correlation_id, answer))
    broker = context.broker_versions.expected.get(ApiKey.API_VERSIONS)
    if broker is None or not LAYOUT_FROM <= broker.max < version:
        return FORWARD  # if the broker lacks the version, the client asks again, as without Weir
    return Forward(frame=_older(told, broker.max, data, frame, body))


def _error(told: ApiVersionsRequest, node_id: int | None) -> ErrorCode:
    """Return the error as Kafka's KafkaApis does. Only brokers compare the cluster id."""
    if (told.cluster_id is None) != (told.node_id == -1):
        return ErrorCode.INVALID_REQUEST
    wrong = told.cluster_id is not None and node_id is not None and told.node_id != node_id
    return ErrorCode.REBOOTSTRAP_REQUIRED if wrong else ErrorCode.NONE


def _older(told: ApiVersionsRequest, version: int, data: bytearray, frame: int, body: int) -> bytes:
    """Return the request's frame in an older version, which leaves out the cluster id and the node id."""
    older = data[frame:body] + codec(ApiVersionsRequest, version).encode(told)
    LENGTH.pack_into(older, 0, len(older) - LENGTH_BYTES)
    _VERSION.pack_into(older, _VERSION_OFFSET, version)
    return bytes(older)
