"""Checks of the quota profile at a small server: right, or wrong in one way."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conformance.probe.quotas.server import Server, Wrong
from weir.conformance.probe.case import CaseOutcome
from weir.conformance.probe.quotas import bandwidth, mutations, request_time
from weir.conformance.probe.quotas.jobs import Stage, results
from weir.conformance.probe.quotas.staging import prepared
from weir.protocol.messages import ProduceResponse
from weir.protocol.values import Message


def failed(wrong: Wrong, module: object, **versions: str) -> set[str]:
    """Last parts of the names of failed checks of a module's jobs, all run at once."""
    with Server(wrong) as server, ThreadPoolExecutor(8) as pool:
        stage: Stage = server.stage(**versions)
        running = [pool.submit(results, job, stage) for job in module.jobs(stage)]  # type: ignore[attr-defined]
        found = [result for each in running for result in each.result()]
    assert found
    assert all(bool(result.message) != result.passed for result in found)
    return {result.case.rpartition("/")[2] for result in found if not result.passed}


def check_mistakes(cases: Sequence[tuple[Wrong, set[str]]], module: object, **versions: str) -> None:
    """Each server's mistake is found by these checks and no others. All servers run at the same time. The
    checks measure waits, so a server with another result runs again, alone.
    """
    with ThreadPoolExecutor(len(cases)) as pool:
        found = list(pool.map(lambda case: failed(case[0], module, **versions), cases))
    for (wrong, names), first in zip(cases, found, strict=True):
        assert first == names or failed(wrong, module, **versions) == names, f"{wrong}: at first {first}"


def test_records_are_written_once_the_leader_knows_that_it_leads() -> None:
    codes = [6, 3]

    class Late(Server):
        def _answer(self, *asked: Any) -> tuple[Message, int]:
            told, throttle_ms = super()._answer(*asked)
            if isinstance(told, ProduceResponse) and codes:
                told.responses[0].partition_responses[0].error_code = codes.pop()
            return told, throttle_ms

    with Late() as server, prepared(server.stage(), False, [], []):
        assert not codes


REQUEST_TIME: Sequence[tuple[Wrong, set[str]]] = [
    (Wrong(), set()),
    (Wrong(no_quotas=True), {"throttle-field", "mute"}),
    (Wrong(no_mute=True), {"mute"}),
    (Wrong(holds=True, no_mute=True), set()),  # each next response is held, too: bandwidth checks find it
    (Wrong(everybody=True), {"below-quota"}),
    (Wrong(zero_field=True), {"throttle-field", "mute"}),
]
"""A server's mistake, and the checks that find it."""


def test_request_time_checks_find_each_mistake_of_a_server_and_no_other() -> None:
    check_mistakes(REQUEST_TIME, request_time, HEARTBEAT="1-4", LIST_GROUPS="1-2")


BANDWIDTH: Sequence[tuple[Wrong, set[str]]] = [
    (Wrong(), set()),
    (
        Wrong(no_quotas=True),
        {"throttle-field", "mute", "own-connection", "other-client", "acks-0-mute"}
        | {"no-records", "no-records-elsewhere"},
    ),
    (Wrong(no_mute=True), {"mute", "acks-0-mute"}),
    (Wrong(holds=True, no_mute=True), {"mute", "own-connection", "other-client"}),
    (Wrong(everybody=True), {"other-client"}),
    (Wrong(mutes_all=True), {"own-connection", "other-client"}),
    (Wrong(keeps_records=True), {"no-records", "no-records-elsewhere"}),
]


@pytest.mark.slow
def test_bandwidth_checks_find_each_mistake_of_a_server_and_no_other() -> None:
    check_mistakes(BANDWIDTH, bandwidth, PRODUCE="8-9", FETCH="11-12")


MUTATIONS: Sequence[tuple[Wrong, set[str]]] = [
    (Wrong(), set()),
    (Wrong(no_quotas=True), {"throttle-field", "mute", "error-89"}),
    (Wrong(refuses_old=True), {"no-error-89"}),
    (Wrong(never_refuses=True), {"error-89", "throttle-field", "mute"}),
]


@pytest.mark.slow
def test_mutation_checks_find_each_mistake_of_a_server_and_no_other() -> None:
    check_mistakes(MUTATIONS, mutations, CREATE_TOPICS="1-7")


def test_all_checks_of_a_job_fail_if_the_target_is_gone() -> None:
    with Server() as server:
        stage = server.stage(HEARTBEAT="1-2")
    found = [result for job in request_time.jobs(stage) for result in results(job, stage)]
    assert {result.outcome for result in found} == {CaseOutcome.REFUSED}
    assert not any(result.passed for result in found)
