"""`/api/brokers`: the brokers that Weir knows."""

from __future__ import annotations

from collections import Counter

from weir.proxy.admin.api.operation import ApiState, Call, Operation
from weir.proxy.control.snapshots.filters import Filter
from weir.proxy.control.snapshots.records import Broker, Brokers


async def _brokers(call: Call) -> Brokers:
    state, wanted = call.state, call.query_of(Filter)
    state.traffic.look(state.sources.now_ms())
    brokers = state.server.address_book
    names = {node_id: f"{node_id} {address}" for node_id, address in brokers.nodes.items()}
    chosen = sorted(node_id for node_id, name in names.items() if wanted.q.casefold() in name.casefold())
    shown = chosen[: wanted.limit]
    throttled = Counter(key.where for key in state.history.throttled_now(state.sources.now_ms()))
    return Brokers(
        now_ms=state.snapshots.unix_ms(),
        hidden=len(chosen) - len(shown),
        brokers=tuple(_broker(state, node_id, throttled[node_id]) for node_id in shown),
        outside=tuple(brokers.left_out.node_ids()),
    )


def _broker(state: ApiState, node_id: int, throttled: int) -> Broker:
    server, traffic = state.server, state.traffic
    outage = server.broker_states.outages.get(node_id)
    return Broker(
        node_id=node_id,
        address=str(server.address_book.nodes[node_id]),
        port=server.address_book.port(node_id),
        up=server.broker_states.is_up(node_id),
        since_ms=None if outage is None else int(outage.changed_s * 1000),
        error=None if outage is None else outage.reason,
        connections=traffic.latest.connections[node_id],
        throttled_entities=throttled,
        in_bytes_per_s=traffic.in_bytes_per_s(node_id),
        out_bytes_per_s=traffic.out_bytes_per_s(node_id),
        rack=None,
    )


OPERATIONS = (Operation("GET", "/api/brokers", "Brokers", Brokers, _brokers, query=Filter),)
