"""Runs all loads at a target at the same time, and makes its datasheet."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from weir.conformance.probe.measure import figures
from weir.conformance.probe.measure.clients import LASTS_S, MeasuredClient, clients
from weir.conformance.probe.measure.sheet import ByteSheet, Datasheet, MutationSheet, TimeSheet
from weir.conformance.probe.quotas import mutations
from weir.conformance.probe.quotas.jobs import results
from weir.conformance.probe.quotas.profile import bare_stage
from weir.conformance.probe.quotas.staging import check_alters, prepared, stage_of
from weir.conformance.probe.requests.names import Names
from weir.conformance.probe.scratch import TargetCluster, scratch
from weir.protocol.api import ApiKey
from weir.protocol.versions import VersionSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weir.conformance.probe.case import Result
    from weir.conformance.probe.link import ProbeTarget
    from weir.conformance.probe.login import Login
    from weir.conformance.probe.quotas.jobs import ClientQuota, Job, Stage
    from weir.conformance.probe.quotas.load import MeasuredAnswer

THREADS: Final = 64
SAY_S: Final = 1.0
_STRICT: Final = "error-89"


class _Ran(NamedTuple):
    """A load that has run."""

    client: MeasuredClient
    passed: list[MeasuredAnswer]
    """Responses of all connections, in the order of time."""
    late_s: float


class Measurement:
    """One measurement of a target. It takes 75 s and the time to prepare topics."""

    def __init__(self, stage: Stage, *, alters: bool) -> None:
        """`alters`: set the quotas, and remove them at the end; otherwise an operator has set them."""
        self._stage = stage
        self._alters = alters
        self._clients = clients(stage)
        mutates = any(client.api_key is ApiKey.CREATE_PARTITIONS for client in self._clients)
        self._mutations: list[Job] = list(mutations.jobs(stage)) if mutates else []
        self._stopped = False
        self.notes: list[str] = []
        """Lines for the user about what could not be done."""

    @property
    def quotas(self) -> list[ClientQuota]:
        """The quotas that the loads need."""
        jobs = [quota for job in self._mutations for quota in job.quotas]
        return [*(client.quota(self._stage) for client in self._clients), *jobs]

    def measure(self, stage: Stage, say: Callable[[float], None]) -> Datasheet:
        """Return the datasheet. `stage`: with the leader of the scratch topic. `say` is called each second
        with the share that is done. Raises UnusableError, ConversationError.
        """
        grown = [
            stage.prefix + client.name
            for client in self._clients
            if client.api_key is ApiKey.CREATE_PARTITIONS
        ]
        with prepared(stage, self._alters, self.quotas, self.notes, grown):
            pool = ThreadPoolExecutor(THREADS, "probe-measure")
            try:
                running = [
                    (
                        client,
                        [
                            pool.submit(client.drive, stage, at, self._clock)
                            for at in range(client.load.connections)
                        ],
                    )
                    for client in self._clients
                ]
                checking = [pool.submit(results, job, stage) for job in self._mutations]
                _await([each for _, futures in running for each in futures], say)
                ran = {client.name: _ran(client, futures) for client, futures in running}
                checked = [result for each in checking for result in each.result()]
            finally:
                self._stopped = True
                pool.shutdown(cancel_futures=True)
        return self._sheet(ran, checked)

    def _clock(self) -> float:
        """Return the time (s), or the end of all time once the measurement was stopped."""
        return float("inf") if self._stopped else time.monotonic()

    def _sheet(self, ran: dict[str, _Ran], checked: Sequence[Result]) -> Datasheet:
        target = self._stage.leader.target
        return Datasheet(
            target=f"{target.host}:{target.port}",
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            produce=_bytes("produce", ran),
            fetch=_bytes("fetch", ran),
            request_time=_time(ran.get("time")),
            strict=_mutation(ran.get("strict")),
            lax=_mutation(ran.get("lax")),
            error_89=_error_89(checked),
            late_ms=max((one.late_s for one in ran.values()), default=0.0) * 1000,
            notes=self.notes,
        )


def measure(
    target: ProbeTarget, login: Login | None, set_for_run: str | None, say: Callable[[float], None]
) -> Datasheet:
    """Measure a target, with a topic that is created and removed. `set_for_run`: name of the run for which an
    operator has set the quotas; None to set them. Raises UnusableError, ConversationError.
    """
    bare, alters = bare_stage(target, login, set_for_run), set_for_run is None
    check_alters(bare, alters)
    cluster = TargetCluster(target, login, bare.versions)
    measurement = Measurement(bare, alters=alters)
    measurement.notes = cluster.notes
    with scratch(cluster, Names.fresh()) as names:
        sheet = measurement.measure(stage_of(bare, names.topic), say)
    return msgspec.structs.replace(sheet, notes=[*sheet.notes, *cluster.left])


def _await(
    futures: Sequence[Future[tuple[list[MeasuredAnswer], float]]], say: Callable[[float], None]
) -> None:
    """Wait for all loads; stop waiting if one has failed, and raise its error."""
    begun_s, running = time.monotonic(), set(futures)
    while running:
        say(min(1.0, (time.monotonic() - begun_s) / LASTS_S))
        done, running = wait(running, SAY_S, FIRST_EXCEPTION)
        for each in done:
            each.result()


def _ran(client: MeasuredClient, futures: Sequence[Future[tuple[list[MeasuredAnswer], float]]]) -> _Ran:
    found = [each.result() for each in futures]
    passed = sorted((one for part, _ in found for one in part), key=lambda one: one.at_s)
    return _Ran(client, passed, max(late_s for _, late_s in found))


def _bytes(kind: str, ran: dict[str, _Ran]) -> ByteSheet | None:
    if f"{kind}-steady" not in ran:
        return None
    even, begun, together = (ran[f"{kind}-{name}"] for name in ("steady", "start", "shared"))
    return ByteSheet(
        figures.steady(even.passed, even.client.load),
        figures.start(begun.passed, begun.client.load.quota),
        figures.shared(together.passed, together.client.load),
    )


def _time(ran: _Ran | None) -> TimeSheet | None:
    if ran is None:
        return None
    rate = figures.mean_rate(ran.passed, ran.client.load)
    load = msgspec.structs.replace(ran.client.load, quota=rate or 1.0)
    percent = ran.client.value
    return TimeSheet(
        percent,
        rate,
        percent * 10 / rate if rate else 0.0,
        figures.steady(ran.passed, load),
        figures.start(ran.passed, load.quota),
    )


def _mutation(ran: _Ran | None) -> MutationSheet | None:
    if ran is None:
        return None
    load = ran.client.load
    return MutationSheet(
        ran.client.version, figures.steady(ran.passed, load), figures.start(ran.passed, load.quota)
    )


def _error_89(checked: Sequence[Result]) -> dict[str, str]:
    """Return API → versions in which a request without tokens got error 89, of those that were checked."""
    found: dict[str, list[int]] = {api.name: [] for api in mutations.APIS} if checked else {}
    for result in checked:
        if result.case.endswith(_STRICT) and 89 in result.errors:
            found.setdefault(result.api, []).append(result.version)
    return {api: str(VersionSet.of(versions)) if versions else "none" for api, versions in found.items()}
