"""Run a calibration: query the broker, set up, warm up, measure in rounds, restore the broker.

Each round measures every case once. Each reading has its own client-id and connection, so that readings do
not influence each other. The coefficients are fitted to the medians of the rounds; the differences between
rounds are the spread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio

from weir.calibration.broker_connection import BrokerConnection, CalibrationError, exchange
from weir.calibration.cases import COEFFICIENTS, GROUPS, TOPICS, CalibrationCase, cases
from weir.calibration.fixture import CLIENT_ID_START, Fixture
from weir.calibration.frames import NodeApiVersions, Request, error_codes, kafka_name
from weir.calibration.load import LoadResult, NeverThrottledError, depth, generate_load
from weir.protocol.api import ApiKey
from weir.protocol.codec import response_type
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import ApiVersionsResponse
from weir.proxy.control.cluster.connection import QuestionError, failures
from weir.proxy.handlers.api_versions.api_versions import ranges
from weir.proxy.handlers.request_time.request_time import generation
from weir.quotas.costs.calibration import COUNT_WANTED, Windows, median, wanted_us
from weir.quotas.costs.cost_fitting import coefficients_of, estimate_us
from weir.quotas.costs.request_costs import shipped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from weir.calibration.broker_connection import BrokerAccess
    from weir.protocol.versions import VersionRange
    from weir.proxy.addresses import Address
    from weir.quotas.costs.request_costs import CostTable, Overrides
    from weir.quotas.table.quota_table import Quota

ROUNDS: Final = 3
AT_MOST_S: Final = 110.0
"""Time limit (s) of the measurement: later, no further round begins. A round measures every kind of request
once.
"""
SHARE: Final = 0.25
"""Maximum mean load on the broker, as a share of one thread."""
WARM_UPS_MAX: Final = 5
WARM_UP_SHARE: Final = 0.4
"""Part of the measurement's time limit after which the warm-up of the broker ends."""
STEADY: Final = 0.9
"""Ratio of one warm-up round's costs to those of the round before (median over all kinds of requests). At
this ratio or above, costs no longer fall, and the warm-up ends.
"""
TRIES: Final = 3
"""Number of extra rounds at the end, which repeat the readings (series of equal requests) that failed before.
"""
FAILURES_MAX: Final = 5
"""Number of readings (series of equal requests) that may fail in a row because the broker does not answer;
then the calibration ends with the last error.
"""
PASSING: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
PASSING_S: Final = 10.0
PUT_BACK_S: Final = 60.0
COLD_US: Final = 60.0
"""Expected cost (µs) that a request has in addition if it is sent after a pause, because the broker was idle
until then.
"""
_AGAIN_S: Final = 0.5
_READING_S: Final = 0.05
"""Approximate time (s) that a reading (one series of equal requests) needs for connecting and logging in,
before its requests.
"""
_REQUEST_S: Final = 0.0001
HELLO: Final = Request(ApiKey.API_VERSIONS, 0, b"")
"""A request of ApiVersions v0, which every broker answers."""


@dataclass(frozen=True, slots=True)
class CalibrationOptions:
    """The options of a calibration."""

    apis: tuple[ApiKey, ...] = tuple(COEFFICIENTS)
    rounds: int = ROUNDS
    share: float = SHARE
    at_most_s: float = AT_MOST_S


class PendingReading(NamedTuple):
    """A load (a request that was sent repeatedly) whose cost at the broker the probe has not read yet."""

    case: CalibrationCase
    client_id: str
    wanted_us: float
    result: LoadResult


class Probe(Protocol):
    """Reads from the broker, or from its exporter, the time (µs) that the broker spent on the requests of
    each client-id.
    """

    until_throttled: bool
    """True if this probe needs throttling: a request is then repeated until the broker throttles it. False if
    a request is repeated a fixed number of times.
    """
    gather_s: float
    """Time (s) for which finished loads (requests that were sent repeatedly) are collected before one call of
    `costs_us` reads the costs of all of them.
    """

    async def look(self) -> list[Quota]: ...
    async def arm(self, wanted: Mapping[str, float], canary: str, windows: Windows) -> None: ...
    async def costs_us(self, pending: Sequence[PendingReading], windows: Windows) -> list[float | str]: ...
    async def disarm(self) -> None: ...
    async def remove(self, quotas: Sequence[Quota]) -> None: ...


@dataclass(slots=True)
class CaseReadings:
    """Measured costs of one kind of request: the broker's time (µs) per request in each round, the amounts
    that the cost depends on, and the number of requests sent.
    """

    case: CalibrationCase
    us: list[float] = field(default_factory=list)
    features: dict[str, float] = field(default_factory=dict)
    requests: int = 0


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """The plan of a calibration, made from queries before Weir changes anything at the broker."""

    address: Address
    spoken: Mapping[int, VersionRange]
    generation: str
    table: CostTable
    """Costs that Weir assumes before the calibration: those of the configuration, or the shipped ones."""
    node_id: int
    windows: Windows
    client_ids: str
    topic: str | None
    group: str | None
    cases: list[CalibrationCase]
    requests: int
    thread_s: float
    """Expected time (s) that the broker's threads will spend on all requests."""
    lasts_s: float
    left_quotas: list[Quota]
    left_topics: list[str]


@dataclass(slots=True)
class CalibrationResults:
    """The results of a calibration, complete or interrupted."""

    found: list[CaseReadings]
    left_out: dict[str, str]
    """Name of an API or of a kind of request (case) that was not measured → the reason."""
    notes: list[str]
    left_behind: list[str] = field(default_factory=list)
    """Descriptions of the topics, groups and quotas that could not be removed, or the errors of the removal.
    """


class Calibration:
    """The calibration of one broker. Call `look`, then `measure` with its result."""

    def __init__(
        self,
        access: BrokerAccess,
        address: Address,
        timeout_s: float,
        options: CalibrationOptions,
        costs: Overrides,
        probe: Callable[[BrokerConnection, NodeApiVersions], Probe],
        *,
        run: str,
        now_ms: int,
        say: Callable[[int, int, str], None] = lambda _done, _total, _text: None,
    ) -> None:
        """Keep the arguments; send nothing to the broker. `costs` are the costs configured now. `probe` is a
        function that makes the probe. `run` is the id of this run, eight hexadecimal digits, and `now_ms` the
        timestamp of all records. `say` shows progress: number of steps done, number of all steps, text.
        """
        self._connection = BrokerConnection(access, address, timeout_s)
        self._options = options
        self._costs = costs
        self._make_probe = probe
        self._run = run
        self._now_ms = now_ms
        self.say = say
        self._number = 0
        self._done = self._total = 0
        self._findings = CalibrationResults([], {}, [])
        self._began_s = 0.0

    async def look(self) -> CalibrationPlan:
        """Query the broker without changing anything, and return the plan. Raises CalibrationError if the
        broker cannot be calibrated, QuestionError if it does not answer.
        """
        try:
            spoken = await self._versions()
            self._broker_versions = NodeApiVersions(spoken)
            self._probe = self._make_probe(self._connection, self._broker_versions)
            self._fixture = Fixture(self._connection, self._broker_versions, self._run, self._now_ms)
            left_quotas = await self._probe.look()
            left_topics = await self._fixture.look()
        finally:
            await self._connection.aclose()
        release = generation(spoken)
        self._table = self._costs.over(shipped(release))
        return self._outlook(spoken, release, left_quotas, left_topics)

    async def _versions(self) -> Mapping[int, VersionRange]:
        answer = await self._connection.ask(HELLO, ApiVersionsResponse)
        if answer.error_code != ErrorCode.NONE:
            raise CalibrationError(
                f"{self._connection.address}: ApiVersions failed with error {answer.error_code}"
            )
        return ranges(answer)

    def _outlook(
        self,
        spoken: Mapping[int, VersionRange],
        release: str,
        left_quotas: list[Quota],
        left_topics: list[str],
    ) -> CalibrationPlan:
        own, wanted = self._fixture.own, frozenset(self._options.apis)
        planned = self._cases()
        costs = [self._wanted_us(case, self._expected_us(case)) for case in planned]
        requests = [total / self._expected_us(case) for case, total in zip(planned, costs, strict=True)]
        rounds = self._options.rounds + 1
        lasts = sum(
            max(cost / 1e6 / self._options.share, _READING_S + count * (_REQUEST_S + case.pause_s))
            for case, cost, count in zip(planned, costs, requests, strict=True)
        )
        return CalibrationPlan(
            address=self._connection.address,
            spoken=spoken,
            generation=release,
            table=self._table,
            node_id=self._fixture.node_id,
            windows=self._fixture.windows,
            client_ids=f"{CLIENT_ID_START}{self._run}-*",
            topic=own.topic if wanted & TOPICS else None,
            group=f"{own.group}-*" if wanted & GROUPS else None,
            cases=planned,
            requests=round(sum(requests) * rounds),
            thread_s=sum(costs) * rounds / 1e6,
            lasts_s=lasts * rounds + 5.0,
            left_quotas=left_quotas,
            left_topics=left_topics,
        )

    def _cases(self) -> list[CalibrationCase]:
        return cases(self._broker_versions, self._fixture.own, self._options.apis, self._now_ms)

    def _expected_us(self, case: CalibrationCase) -> float:
        """Estimate the broker's time (µs, at least 1) for one request of the case, from the costs that are
        configured before the calibration. The response is assumed to be as large as the request.
        """
        length = float(len(case.request.body))
        known = case.features(length, length)
        guess = estimate_us(known, coefficients_of(self._table.of(case.api)))
        return max(guess + (COLD_US if case.pause_s else 0.0), 1.0)

    def _wanted_us(self, case: CalibrationCase, expected_us: float) -> float:
        """Return the broker's time (µs) that the requests of one measurement should take together. Requests
        that are sent after pauses are as few as possible, because the pauses take long.
        """
        return COUNT_WANTED * expected_us if case.pause_s else wanted_us(expected_us)

    # Steps that change the broker

    async def measure(self, outlook: CalibrationPlan) -> CalibrationResults:
        """Measure, then restore the broker, also after a failure or a cancellation. When this method has
        ended, `findings.left_behind` lists everything that could not be removed. Raises CalibrationError,
        QuestionError.
        """
        self._began_s = trio.current_time()
        try:
            await self._probe.remove(outlook.left_quotas)
            await self._fixture.delete_topics(outlook.left_topics)
            await self._set_up()
            await self._read_all()
        finally:
            with trio.CancelScope(shield=True):
                await self._put_back()
        return self._findings

    def _is_late(self, share: float) -> bool:
        return trio.current_time() - self._began_s > share * self._options.at_most_s

    @property
    def findings(self) -> CalibrationResults:
        """The results so far; also available after `measure` was cancelled or has failed."""
        return self._findings

    async def _set_up(self) -> None:
        self.say(0, 0, "creating a topic and a group to measure with")
        wanted = frozenset(self._options.apis)
        if wanted & TOPICS:
            await self._fixture.make_topic()
        if wanted & GROUPS:
            reason = await self._fixture.make_group()
            if reason is not None:
                self._findings.left_out.update({kafka_name(api): reason for api in wanted & GROUPS})
        for api in wanted:
            if self._broker_versions.version(api) is None:
                self._findings.left_out[kafka_name(api)] = "the broker does not have this API"

    async def _put_back(self) -> None:
        """Remove the quotas, topic and group of the calibration; if a step fails, try it once more on a new
        connection. Write failures to `left_behind` of the findings instead of raising them.
        """
        self.say(self._total, self._total, "removing quotas, topic and group")
        left: list[str] = []
        with trio.move_on_after(PUT_BACK_S) as scope:
            for step in (self._disarm, self._fixture.clear):
                left += await self._twice(step)
            await self._connection.aclose()
        if scope.cancelled_caught:
            left.append(
                f"names that begin with {CLIENT_ID_START}{self._run}, or topic {self._fixture.own.topic}"
            )
        self._findings.left_behind = left

    async def _disarm(self) -> list[str]:
        await self._probe.disarm()
        return []

    async def _twice(self, step: Callable[[], Awaitable[list[str]]]) -> list[str]:
        for last in (False, True):
            try:
                return await step()
            except (QuestionError, CalibrationError) as error:
                await self._connection.aclose()
                if last:
                    return [str(error)]
                await trio.sleep(_AGAIN_S)
        return []

    # Measuring

    async def _read_all(self) -> None:
        found = [CaseReadings(case) for case in await self._working_cases()]
        self._findings.found = found
        if not found:
            raise CalibrationError(f"{self._connection.address}: no chosen API can be measured")
        self._total = len(found) * (1 + self._options.rounds)
        expected = await self._warm_up(found)
        for turn in range(self._options.rounds + TRIES):
            if turn and self._is_late(1.0):
                self._findings.notes.append(
                    f"time limit reached after {turn} of {self._options.rounds} rounds: spread uncertain"
                )
                break
            lacking = [one for one in found if len(one.us) < min(turn + 1, self._options.rounds)]
            if not lacking:
                break
            for one, us, result in await self._round(lacking, expected):
                one.us.append(us)
                one.requests += result.reading.requests
                one.features = one.case.features(result.request_bytes, result.response_bytes)
                expected[id(one)] = min(one.us)
                self._done += 1
        for one in found:
            if not one.us:
                self._findings.left_out[_label(one.case)] = "no reading succeeded"
        found[:] = [one for one in found if one.us]
        if all(one.case.pause_s for one in found):
            raise CalibrationError(
                f"{self._connection.address}: no reading succeeded; the broker may be too busy"
            )
        self._compare(found)

    def _compare(self, found: Sequence[CaseReadings]) -> None:
        ratios = [one.us[-1] / one.us[0] for one in found if len(one.us) > 1]
        if ratios and median(ratios) < STEADY:
            self._findings.notes.append(
                f"the last round cost {median(ratios):.2f} times the first: the broker is still warming up, "
                "or its load changes: calibrate again"
            )

    async def _working_cases(self) -> list[CalibrationCase]:
        """Send the request of each case (kind of request) once; return the cases whose responses have no
        error. For the others, write the reason into `left_out` of the findings.
        """
        good = []
        names = {code.value: code.name for code in ErrorCode}
        for case in self._cases():
            try:
                codes = await self._errors(case)
            except QuestionError as error:
                self._findings.left_out[_label(case)] = str(error)
                await self._connection.aclose()
                continue
            if codes:
                reason = ", ".join(names.get(code, f"error {code}") for code in sorted(codes))
                self._findings.left_out[_label(case)] = f"the broker answers {reason}"
            else:
                good.append(case)
        return good

    async def _errors(self, case: CalibrationCase) -> set[int]:
        """Send the case's request; return the error codes of the response. Repeat for at most `PASSING_S`
        while an error is transient (`PASSING`).
        """
        deadline_s = trio.current_time() + PASSING_S
        while True:
            codes = error_codes(await self._connection.ask(case.request, response_type(case.request.api)))
            if not codes & PASSING or trio.current_time() > deadline_s:
                return codes
            await trio.sleep(_AGAIN_S)

    async def _warm_up(self, found: Sequence[CaseReadings]) -> dict[int, float]:
        """Measure all cases in rounds until the costs stop falling. Return the last cost (µs) of one request
        of each case, by Python's `id` of its `CaseReadings`.
        """
        expected = {id(one): self._expected_us(one.case) for one in found}
        for turn in range(WARM_UPS_MAX):
            before = dict(expected)
            for one, us, _result in await self._round(found, expected, is_rough=True):
                expected[id(one)] = us
            if self._is_late(WARM_UP_SHARE):
                break
            if turn and median([expected[key] / before[key] for key in before]) >= STEADY:
                break
        self._done = len(found)
        return expected

    async def _round(
        self, found: Sequence[CaseReadings], expected: Mapping[int, float], *, is_rough: bool = False
    ) -> list[tuple[CaseReadings, float, LoadResult]]:
        """Measure each case (kind of request) once; return (readings of the case, cost in µs per request,
        result of the load) for each measurement that succeeded. If `is_rough`, a case whose cost is unknown
        counts with a lower bound of the cost.
        """
        wanted = {self._client_id(): (one, self._wanted_us(one.case, expected[id(one)])) for one in found}
        totals = {client_id: total for client_id, (_one, total) in wanted.items()}
        await self._probe.arm(totals, self._client_id(), self._fixture.windows)
        measured: list[tuple[CaseReadings, float, LoadResult]] = []
        gathered: list[tuple[CaseReadings, PendingReading]] = []
        failed = 0
        since_s = trio.current_time()
        for client_id, (one, total) in wanted.items():
            if self._is_late(WARM_UP_SHARE if is_rough else 1.0) and (is_rough or one.us):
                continue
            self.say(self._done + len(measured), self._total, "warming up" if is_rough else _label(one.case))
            began_s = trio.current_time()
            try:
                result = await self._read(one.case, client_id, total / expected[id(one)])
            except NeverThrottledError:
                continue
            except QuestionError:
                failed += 1
                if failed >= FAILURES_MAX:
                    raise
                await trio.sleep(_AGAIN_S * failed)
                continue
            failed = 0
            gathered.append((one, PendingReading(one.case, client_id, total, result)))
            if trio.current_time() - since_s >= self._probe.gather_s:
                measured += await self._costs_us(gathered, is_rough=is_rough)
                gathered, since_s = [], trio.current_time()
            await trio.sleep(max(total / 1e6 / self._options.share - (trio.current_time() - began_s), 0.0))
        return measured + await self._costs_us(gathered, is_rough=is_rough)

    async def _costs_us(
        self, gathered: Sequence[tuple[CaseReadings, PendingReading]], *, is_rough: bool
    ) -> list[tuple[CaseReadings, float, LoadResult]]:
        if not gathered:
            return []
        totals = await self._probe.costs_us([pending for _one, pending in gathered], self._fixture.windows)
        measured = []
        for (one, pending), total in zip(gathered, totals, strict=True):
            if isinstance(total, float) and total > 0:
                measured.append((one, total / pending.result.reading.requests, pending.result))
            elif is_rough:  # the cost is unknown, and at least this high
                measured.append((one, pending.wanted_us / pending.result.reading.requests, pending.result))
        return measured

    def _client_id(self) -> str:
        """Return a new client-id. All client-ids have the same length, because it counts towards the size of
        requests.
        """
        self._number += 1
        return f"{CLIENT_ID_START}{self._run}-{self._number:06d}"

    async def _read(self, case: CalibrationCase, client_id: str, count: float) -> LoadResult:
        """Measure the case once on a new connection: send its request until the broker throttles it or, with
        a probe that does not need throttling, `count` times. Raises QuestionError if the broker does not
        answer, NeverThrottledError if it does not throttle.
        """
        async with await self._connection.connect() as connection:
            with failures(self._connection.address, self._connection.timeout_s):
                asked_s = trio.current_time()
                # The broker adds the cost of connecting to the first request: do not measure that request.
                await exchange(
                    connection.stream,
                    HELLO,
                    ApiVersionsResponse,
                    self._connection.timeout_s,
                )
                round_trip_s = trio.current_time() - asked_s
                until = self._probe.until_throttled
                return await generate_load(
                    connection.stream,
                    case,
                    client_id,
                    under_way=depth(case.request.frame(client_id), round_trip_s),
                    timeout_s=self._connection.timeout_s,
                    at_most_s=self._fixture.windows.span_s,
                    enough=None if until else max(round(count), 2),
                )


def _label(case: CalibrationCase) -> str:
    return f"{case.api} {case.name}".strip()
