"""KIP-1242: a client that expects another node at Weir's port bootstraps again, whatever the broker knows."""

from __future__ import annotations

from typing import Final

import pytest

from tests.proxy.playbook import Playbook
from tests.proxy.wire import new_connection
from tests.wire.frames import body_of, request, response
from weir.protocol.api import ApiKey
from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from weir.protocol.versions import VersionRange
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans

NODE: Final = 2
OWN: Final = ("cluster", NODE)
NEWEST_OF: Final = {"unknown": None, "0.10.2": 0, "2.8": 3, "3.9": 4, "4.4": 5}
"""Newest version of ApiVersions, by release: `weir probe --versions` at these brokers."""


def connected(newest: int | None, node_id: int | None = NODE) -> Playbook:
    """A connection at the port of a node; another connection has met a broker of the same release."""
    plans = Plans(Counters())
    if newest is not None:
        plans.for_broker({ApiKey.API_VERSIONS: VersionRange(0, newest)})
    return Playbook(connection=new_connection(plans=plans, node_id=node_id))


def hello(version: int, cluster_id: str | None = None, node_id: int = -1, number: int = 1) -> bytes:
    message = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.4.0")
    if version >= 5:
        message.cluster_id, message.node_id = cluster_id, node_id
    return request(message, version, number)


@pytest.mark.parametrize("newest", NEWEST_OF.values(), ids=NEWEST_OF)
@pytest.mark.parametrize(
    ("told", "error"),
    [(("cluster", 1), 129), (("another", 1), 129), (("cluster", -1), 42), ((None, NODE), 42)],
)
def test_another_node_than_the_ports_is_refused_and_the_connection_lives(
    newest: int | None, told: tuple[str | None, int], error: int
) -> None:
    with connected(newest) as play:
        play.client(hello(5, *told))
        play.to_client(response(ApiVersionsResponse(error_code=error), 5))
        assert play.connection.counters.wrong_nodes == (error == 129)
        play.client(hello(5))
        play.wire.to_broker.clear()


@pytest.mark.parametrize(
    ("release", "asked"), [("unknown", 5), ("0.10.2", 5), ("2.8", 3), ("3.9", 4), ("4.4", 5)]
)
@pytest.mark.parametrize("told", [OWN, (None, -1)])
@pytest.mark.parametrize("version", [5, 4])
def test_a_broker_gets_the_newest_version_that_it_has_and_its_answer_fits(
    release: str, asked: int, told: tuple[str | None, int], version: int
) -> None:
    """Version 5 is offered for the client's next connection."""
    key = ApiVersionsResponse.ApiVersion
    asked, newest = min(asked, version), NEWEST_OF[release] or 0
    answer = ApiVersionsResponse(
        api_keys=[
            key(api_key=ApiKey.HEARTBEAT, min_version=0, max_version=9),
            key(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=newest),
        ]
    )
    with connected(NEWEST_OF[release]) as play:
        play.client(hello(version, *told))
        play.to_broker(hello(asked, *told))
        play.broker(response(answer, asked))
        found = body_of(bytes(play.wire.to_client), ApiVersionsResponse, version).api_keys
        assert [(each.api_key, each.max_version) for each in found] == [
            (ApiKey.HEARTBEAT, 4),  # cut down to Weir's
            (ApiKey.API_VERSIONS, 5 if newest >= 3 else newest),
        ]
        play.wire.to_client.clear()


@pytest.mark.parametrize(("code", "version"), [(35, 0), (42, 5), (129, 5)])
def test_a_brokers_refusal_is_forwarded_and_tells_no_versions(code: int, version: int) -> None:
    with connected(5) as play:
        play.relays(hello(5, *OWN), response(ApiVersionsResponse(error_code=code), version))
        assert play.connection.broker_versions.broker is None


def test_a_bootstrap_port_is_no_node() -> None:
    with connected(5, node_id=None) as play:
        play.forwards(hello(5, "cluster", 1))
