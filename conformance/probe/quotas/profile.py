"""The quota profile: sets quotas for client-ids of its own, runs all jobs, and removes the quotas."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import msgspec

from weir.conformance.probe.link import ProbeTarget
from weir.conformance.probe.quotas import bandwidth, mutations, rates, request_time, table
from weir.conformance.probe.quotas.client import BrokerEndpoint, ProbeClient
from weir.conformance.probe.quotas.jobs import ClientQuota, Stage, advertised, results
from weir.conformance.probe.quotas.staging import check_alters, prepared, stage_of
from weir.conformance.probe.requests.names import PREFIX
from weir.protocol.values import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from weir.conformance.probe.case import Result
    from weir.conformance.probe.login import Login
    from weir.conformance.probe.quotas.jobs import Job

THREADS: Final = 32
ANSWER_S: Final = 30.0
"""Time (s) after which an answer counts as missing: longer than every throttle time."""


def new_run() -> str:
    """Return a name for a run. Brokers remember the use of a client-id, so each run needs new client-ids."""
    return secrets.token_hex(4)


class QuotaProfile:
    """One run of the profile (KIP-13, 124, 219, 546, 599). It takes about 30 s."""

    def __init__(
        self,
        target: ProbeTarget,
        login: Login | None = None,
        *,
        set_for_run: str | None = None,
        only: Callable[[str], bool] = lambda _name: True,
    ) -> None:
        """Ask the target for its versions. Raises LinkError.

        `set_for_run`: name of the run for which an operator has set `quotas`; by default the profile sets
        them, and removes them at the end. `only`: which checks to run, by name. Checks that share connections
        run together; the profile leaves out the results of others among them.
        """
        self._alters = set_for_run is None
        self._only = only
        self._stage = bare_stage(target, login, set_for_run)
        jobs = [job for job in _jobs(self._stage) if any(only(check.name) for check in job.checks)]
        self._jobs = jobs if self._alters else [job for job in jobs if not job.alters]
        self.names = [check.name for job in self._jobs for check in job.checks if only(check.name)]
        """Names of the checks."""
        self.notes: list[str] = []
        """Lines for the user about what could not be done."""
        if not self._alters:
            self.notes.append("checks of AlterClientQuotas are skipped: the quotas were set beforehand")

    @property
    def quotas(self) -> list[ClientQuota]:
        """The quotas that the checks need."""
        return [quota for job in self._jobs for quota in job.quotas]

    def results(self, scratch_topic: str) -> Generator[Result, None, None]:
        """Yield the result of each check. `scratch_topic`: an existing topic; the profile appends records to
        partition 0. Quotas and further topics are removed in the end, also if the caller stops.

        Raises UnusableError if the target cannot set quotas, or has no such topic; LinkError if it is gone.
        """
        check_alters(self._stage, self._alters)
        stage = stage_of(self._stage, scratch_topic)
        with prepared(stage, self._alters, self.quotas, self.notes):
            for found in _run(self._jobs, stage):
                yield from (result for result in found if self._only(result.case))


def bare_stage(target: ProbeTarget, login: Login | None, set_for_run: str | None) -> Stage:
    """Ask the target for its versions. Return a stage for which jobs can be made, but not run. Raises
    ConversationError.
    """
    patient = msgspec.structs.replace(target, timeout_s=max(ANSWER_S, target.timeout_s))
    endpoint, prefix = BrokerEndpoint(patient, login), f"{PREFIX}{set_for_run or new_run()}-"
    with ProbeClient(endpoint, prefix + "versions") as client:
        offered = client.offered()
    return Stage(endpoint, endpoint, advertised(offered), "", ZERO_UUID, prefix)


def _jobs(stage: Stage) -> list[Job]:
    """Return all jobs: the longest first, since they run at the same time."""
    return [
        *rates.jobs(stage),
        *request_time.jobs(stage),
        *mutations.jobs(stage),
        *bandwidth.jobs(stage),
        *table.jobs(stage),
    ]


def _run(jobs: Sequence[Job], stage: Stage) -> Generator[list[Result], None, None]:
    """Run all jobs at the same time. Yield the results of each, in the order of the jobs."""
    pool = ThreadPoolExecutor(THREADS, "probe-quotas")
    try:
        for running in [pool.submit(results, job, stage) for job in jobs]:
            yield running.result()
    finally:
        pool.shutdown(cancel_futures=True)
