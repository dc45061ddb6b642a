"""Limits of a connection's life: age, idle time, time to log in."""

from __future__ import annotations

from itertools import pairwise

import trio
from structlog.testing import capture_logs

from tests.proxy.rigs import Rig
from tests.proxy.stage import PING, PONG, Stage, until
from tests.proxy.wire import new_connection
from tests.scripted import staged
from tests.wire.frames import request, response
from weir.protocol.messages import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config.settings import Settings
from weir.proxy.connection.lifetime import JITTER, LifetimeLimits, reached_limit
from weir.proxy.connection.state import State
from weir.proxy.control.snapshots.opened import ByteRates, OpenConnection
from weir.proxy.server.lifetimes import LOOK_S_MAX, LOOK_S_MIN, RETIRED_SHARE, Lifetimes

HOUR_MS = 3_600_000


def due(rig: Rig, now_ms: int, *, age_ms: int = 0, login_ms: int = 0) -> CloseReason | None:
    """Which limit the rig's connection has reached at this time."""
    rig.until(now_ms)
    limits = LifetimeLimits(age_ms, login_ms)
    return reached_limit(rig.connection, 0, 0, limits, now_ms)


def ages(count: int) -> list[int]:
    """The ages in ms, of so many connections, at which an hour is over."""
    connection, limits = new_connection(), LifetimeLimits(age_ms=HOUR_MS)
    found = []
    for number in range(count):
        low, high = 0, 2 * HOUR_MS
        while high - low > 1:
            middle = (low + high) // 2
            is_due = reached_limit(connection, 0, number, limits, middle) is CloseReason.CONNECTION_AGE
            low, high = (low, middle) if is_due else (middle, high)
        found.append(high)
    return found


def test_connections_reach_their_age_evenly_spread_around_the_configured_one() -> None:
    found = sorted(ages(200))
    assert HOUR_MS * (1 - JITTER) <= found[0] < found[-1] <= HOUR_MS * (1 + JITTER)
    gaps = [later - earlier for earlier, later in pairwise(found)]
    assert max(gaps) < 4 * 2 * JITTER * HOUR_MS / len(found)
    assert ages(3) == ages(3)


def test_a_client_that_sends_nothing_reaches_the_login_timeout_and_one_that_asks_does_not() -> None:
    rig = Rig()
    assert due(rig, 9_999, login_ms=10_000) is None
    assert due(rig, 10_000, login_ms=10_000) is CloseReason.LOGIN_TIMEOUT
    rig.send(rig.client, PING[:6])  # less than a request's head
    assert due(rig, 11_000, login_ms=10_000) is CloseReason.LOGIN_TIMEOUT
    rig.send(rig.client, PING[6:])
    assert due(rig, 12_000, login_ms=10_000) is None
    rig.close()


def test_where_clients_must_log_in_a_request_does_not_end_the_login_timeout() -> None:
    rig = Rig(connection=new_connection(node_id=0))
    rig.connection.identities.behind_sasl.add(0)
    rig.pass_on(request(ApiVersionsRequest(), 0), rig.client, rig.broker)
    assert due(rig, 10_000, login_ms=10_000) is CloseReason.LOGIN_TIMEOUT
    rig.close()


def test_a_login_that_is_not_finished_reaches_the_login_timeout_and_a_finished_one_does_not() -> None:
    rig = Rig()
    rig.pass_on(request(SaslHandshakeRequest(mechanism="PLAIN"), 1), rig.client, rig.broker)
    rig.pass_on(response(SaslHandshakeResponse(), 1), rig.broker, rig.client)
    assert due(rig, 10_000, login_ms=10_000) is CloseReason.LOGIN_TIMEOUT
    rig.pass_on(request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0x"), 1), rig.client, rig.broker)
    rig.pass_on(response(SaslAuthenticateResponse(), 1), rig.broker, rig.client)
    assert due(rig, 20_000, login_ms=10_000) is None
    assert due(rig, 90_000, login_ms=10_000) is None
    rig.close()


def test_the_time_between_looks_follows_the_smallest_limit() -> None:
    def period_s(age_s: float = 0, login_s: float = 0) -> float:
        settings = Settings(connection_age_max_s=age_s, login_timeout_s=login_s)
        return Lifetimes({}, lambda: settings).period_s()

    assert period_s() == LOOK_S_MAX
    assert period_s(age_s=3600) == LOOK_S_MAX
    assert period_s(age_s=3600, login_s=30) == 3
    assert period_s(login_s=0.01) == LOOK_S_MIN


def test_many_connections_that_reach_their_age_together_are_not_drained_at_once() -> None:
    rigs = [Rig() for _ in range(2 * RETIRED_SHARE)]
    relays = {
        rig.relay: OpenConnection(number, "", 0, 0, False, ByteRates(0)) for number, rig in enumerate(rigs)
    }
    lifetimes = Lifetimes(relays, lambda: Settings(connection_age_max_s=1))
    open_at_looks = []
    for _ in range(3):
        list(lifetimes.look(lambda: HOUR_MS))
        open_at_looks.append(sum(rig.reason is None for rig in rigs))
    assert open_at_looks == [len(rigs) - 3, len(rigs) - 6, len(rigs) - 9]
    for rig in rigs:
        rig.close()


# The whole server


@staged(connection_age_max_s=0.3)
async def test_a_connection_at_its_age_answers_what_is_in_flight_and_closes(stage: Stage) -> None:
    stage.cluster.may_answer = trio.Event()
    client = await stage.connect(0)
    await client.stream.send_all(PING)
    await until(lambda: any(relay.connection.state == State.DRAINING for relay in stage.plane.relays))
    assert stage.plane.counters.closed[CloseReason.CONNECTION_AGE] == 0
    await client.stream.send_all(PING)
    stage.cluster.may_answer.set()
    assert await client.frame() == PONG
    assert await client.frame() is None
    await stage.closed(CloseReason.CONNECTION_AGE)
    assert len(stage.cluster.asked) == 1
    again = await stage.connect(0)
    assert await again.ask(PING) == PONG


@staged(login_timeout_s=0.2)
async def test_a_client_that_never_sends_a_request_is_closed_and_named_in_the_log(stage: Stage) -> None:
    with capture_logs() as logged:
        silent = await stage.connect(0)
        assert await silent.frame() is None
        await stage.closed(CloseReason.LOGIN_TIMEOUT)
    (line,) = [line for line in logged if line["event"] == "connection closed"]
    assert (line["log_level"], line["reason"]) == ("warning", "login_timeout")
