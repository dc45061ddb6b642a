"""Quota administration of a worker: numbers of alterations, and denied requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from structlog.testing import capture_logs

from tests.proxy.stage import Stage
from tests.proxy.worker_rigs import NUMBERED_FROM, Heard, link_pair, new_pool, running_worker
from tests.scripted import staged
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.workers.messages import Alter, Altered, Denied
from weir.proxy.workers.quota_admin import ForwardingQuotaAdmin
from weir.quotas import QuotaTable

PEER = "10.0.0.1:5"


@contextmanager
def new_admin(first_number: int) -> Iterator[tuple[ForwardingQuotaAdmin, Heard]]:
    """The quota administration of a process without admins, and the supervisor's end of its link."""
    ours, theirs = link_pair()
    registry = QuotaRegistry(QuotaTable())
    try:
        yield ForwardingQuotaAdmin(theirs, registry, frozenset(), first_number), Heard(ours)
    finally:
        ours.close()
        theirs.close()


@pytest.mark.trio
async def test_the_answer_to_an_alteration_of_a_former_process_reaches_no_other_admin() -> None:
    answers: list[str | None] = []
    with new_admin(0) as (former, heard):
        former.alter({}, "admin", PEER, answers.append)
        old, _sock = await heard.link.receive()
    assert isinstance(old, Alter)
    with new_admin(10**10) as (admin, heard):
        admin.alter({}, "admin", PEER, answers.append)
        new, _sock = await heard.link.receive()
        assert isinstance(new, Alter)
        admin.stored(Altered(old.number, "an error"))
        assert answers == []
        admin.stored(Altered(new.number, None))
        assert answers == [None]


@pytest.mark.trio
async def test_the_numbers_of_a_workers_alterations_begin_after_those_of_other_processes() -> None:
    async with running_worker() as rig:
        rig.worker.plane.plans.quota_admin.alter({}, "admin", PEER, lambda _error: None)
        (alter,) = await rig.hear(Alter)
        assert alter.number >= NUMBERED_FROM


@pytest.mark.trio
async def test_denied_quota_requests_at_a_worker_are_logged_once_a_second_and_all_are_told() -> None:
    async with running_worker() as rig:
        with capture_logs() as logged:
            for _ in range(50):
                assert rig.worker.plane.plans.quota_admin.rejection("mallory", PEER) is not None
        assert len([line for line in logged if line["event"] == "client quotas denied"]) in {1, 2}
        with trio.fail_after(10):
            assert [denied.count for denied in await rig.hear(Denied)] == [50]


@staged()
async def test_the_supervisor_counts_quota_requests_that_workers_have_denied(stage: Stage) -> None:
    pool = new_pool(stage.server)
    for count in (2, 3):
        await pool._take(0, Denied(count))
    assert pool._manager._state.denied == 5
