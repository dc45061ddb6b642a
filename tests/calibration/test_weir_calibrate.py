"""Calibration finds the costs of a simulated broker, and leaves nothing at the broker after any failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tests.calibration.calibrated_broker import ADDRESS, VERSIONS, CalibratedBroker
from tests.kfake.cluster import up_to
from tests.matrix import first_core
from weir.calibration.batches import batch, text
from weir.calibration.broker_connection import BrokerConnection, CalibrationError
from weir.calibration.cases import COEFFICIENTS
from weir.calibration.frames import NodeApiVersions, kafka_name
from weir.calibration.jmx import JmxProbe, rates_of
from weir.calibration.probe import QuotaProbe
from weir.calibration.run import Calibration, CalibrationOptions, CalibrationResults, PendingReading, Probe
from weir.protocol.api import ApiKey
from weir.proxy.control.cluster.connection import QuestionError
from weir.quotas.costs.calibration import Windows
from weir.quotas.costs.cost_findings import Readings, findings
from weir.quotas.costs.request_costs import ColdCost, Overrides, shipped

COSTS = {
    ApiKey.API_VERSIONS: {"us": 20.0},
    ApiKey.METADATA: {"us": 40.0, "us_per_response_kb": 12.0},
    ApiKey.PRODUCE: {
        "us": 50.0,
        "us_per_request_kb": 3.0,
        "us_per_partition": 9.0,
        "us_acks_all": 60.0,
        "us_per_unpacked_kb.gzip": 4.0,
    },
    ApiKey.FETCH: {"us": 45.0, "us_per_request_kb": 60.0, "us_per_response_kb": 0.5},
    ApiKey.HEARTBEAT: {"us": 33.0},
}
SOME = (ApiKey.METADATA, ApiKey.HEARTBEAT)
RUN = "0123abcd"
OLD: tuple[dict[str, str | None], dict[str, float]] = (
    {"client-id": "weir-calibrate-old-1"},
    {"request_percentage": 1.0},
)


def by_quota(connection: BrokerConnection, broker_versions: NodeApiVersions) -> Probe:
    return QuotaProbe(connection, broker_versions, "ANONYMOUS")


def calibrate(
    broker: CalibratedBroker,
    options: CalibrationOptions,
    *,
    stop_after: int | None = None,
    probe: Callable[[BrokerConnection, NodeApiVersions], Probe] = by_quota,
    dry_run: bool = False,
) -> CalibrationResults:
    """Calibrate in simulated time; cancel at the progress report with number `stop_after`."""

    async def main() -> CalibrationResults:
        said = 0

        def say(done: int, total: int, what: str) -> None:
            nonlocal said
            said += 1
            if stop_after is not None and said == stop_after:
                scope.cancel()

        async with trio.open_nursery() as nursery:
            broker.nursery = nursery
            calibration = Calibration(
                broker, ADDRESS, 10.0, options, Overrides(), probe, run=RUN, now_ms=1_800_000_000_000, say=say
            )
            with trio.CancelScope() as scope:
                failure = None
                try:
                    outlook = await calibration.look()
                    if not dry_run:
                        await calibration.measure(outlook)
                except (CalibrationError, QuestionError) as error:
                    failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return calibration.findings

    return trio.run(main, clock=MockClock(autojump_threshold=0))


def left_nothing(broker: CalibratedBroker) -> None:
    assert broker.quotas == {}
    assert broker.topics == {}
    assert broker.groups == set()


@pytest.mark.slow
def test_calibration_measures_known_costs() -> None:
    broker = CalibratedBroker(costs=COSTS, cold_us=70.0)
    found = calibrate(broker, CalibrationOptions(tuple(COSTS), rounds=1, share=1.0))
    left_nothing(broker)
    assert found.left_out == {}
    assert found.left_behind == []
    readings = [Readings(f.case.api, f.us, f.features, f.case.pause_s * 1e6) for f in found.found]
    names = {kafka_name(api): names for api, names in COEFFICIENTS.items()}
    cold = ColdCost(
        us=55.0, from_us=300.0, full_us=1500.0
    )  # the simulated cost is complete after 1.5 ms of idleness
    fitted = findings(readings, names, msgspec.structs.replace(shipped("2.8"), cold=cold))
    measured = {(one.api, one.name): one.new for one in fitted.coefficients if one.measured}
    for api, coefficients in COSTS.items():
        for name, us in coefficients.items():
            assert measured.pop((kafka_name(api), name)) == pytest.approx(us, rel=0.05), (api, name)
    assert measured.pop(("cold", "us")) == pytest.approx(70.0, rel=0.1)
    assert max(measured.values(), default=0.0) < 0.2  # coefficients that cost nothing at the simulated broker


def test_a_calibration_dry_run_changes_nothing() -> None:
    broker = CalibratedBroker(costs=COSTS, stored=[OLD])
    broker.add("__weir_calibrate_00000000")
    calibrate(broker, CalibrationOptions(), dry_run=True)
    assert {api_key for api_key, _version in broker.questions} <= {
        ApiKey.API_VERSIONS,
        ApiKey.METADATA,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
    }
    assert broker.quotas
    assert broker.topics


@pytest.mark.slow
def test_calibration_removes_only_the_leftovers_of_a_killed_run() -> None:
    others = {"app": {"request_percentage": 5.0}}
    broker = CalibratedBroker(costs=COSTS, stored=[({"client-id": "app"}, others["app"]), OLD])
    for name in ("__weir_calibrate_00000000", "__weir_calibrate_mine", "orders"):
        broker.add(name)
    calibrate(broker, CalibrationOptions((ApiKey.METADATA,), rounds=1, share=1.0))
    assert broker.quotas == others
    assert set(broker.topics) == {"__weir_calibrate_mine", "orders"}


@pytest.mark.parametrize("stop_after", first_core([3, 1, 2, 5, 8]))
def test_an_interrupted_calibration_restores_the_broker(stop_after: int) -> None:
    broker = CalibratedBroker(costs=COSTS)
    found = calibrate(broker, CalibrationOptions(SOME, rounds=2, share=1.0), stop_after=stop_after)
    left_nothing(broker)
    assert found.left_behind == []


@pytest.mark.parametrize(
    "breaks_after", first_core([frozenset({30}), frozenset({60, 200, 400}), frozenset({5, 6})])
)
def test_calibration_reconnects_after_a_lost_connection(breaks_after: frozenset[int]) -> None:
    broker = CalibratedBroker(costs=COSTS, breaks_after=breaks_after)
    try:
        found = calibrate(broker, CalibrationOptions((ApiKey.HEARTBEAT,), rounds=2, share=1.0))
    except QuestionError:  # the first connection was lost: the command reports it
        left_nothing(broker)
        return
    left_nothing(broker)
    assert [len(one.us) for one in found.found] == [2]


@pytest.mark.slow
def test_calibration_skips_apis_that_the_broker_does_not_answer() -> None:
    """It closes the connection when a client lists groups."""
    broker = CalibratedBroker(
        costs=COSTS,
        spoken=VERSIONS | up_to({ApiKey.LIST_GROUPS: 4}),
        handlers={ApiKey.LIST_GROUPS: lambda *_: None},
    )
    found = calibrate(broker, CalibrationOptions((ApiKey.HEARTBEAT, ApiKey.LIST_GROUPS), rounds=2, share=1.0))
    left_nothing(broker)
    assert {one.case.api for one in found.found} == {"Heartbeat"}
    assert "ListGroups" in found.left_out


class Silent(QuotaProbe):
    async def costs_us(self, pending: Sequence[PendingReading], windows: Windows) -> list[float | str]:
        assert windows == Windows()
        return ["nothing"] * len(pending)


@pytest.mark.slow
def test_calibration_without_a_usable_reading_ends_with_an_error() -> None:
    broker = CalibratedBroker(costs=COSTS)
    options = CalibrationOptions((ApiKey.HEARTBEAT,), rounds=2, share=1.0)
    with pytest.raises(CalibrationError, match="no reading succeeded"):
        calibrate(
            broker,
            options,
            probe=lambda connection, broker_versions: Silent(connection, broker_versions, "ANONYMOUS"),
        )
    left_nothing(broker)


def test_calibration_reports_a_broker_before_2_6() -> None:
    spoken = {key: range_ for key, range_ in VERSIONS.items() if key != ApiKey.ALTER_CLIENT_QUOTAS}
    broker = CalibratedBroker(costs=COSTS, spoken=spoken)
    with pytest.raises(CalibrationError, match=r"before 2\.6 .*--jmx-prometheus"):
        calibrate(broker, CalibrationOptions())


def test_calibration_reports_a_missing_right() -> None:
    broker = CalibratedBroker(costs=COSTS, quotas_error=31)
    with pytest.raises(CalibrationError, match="no right to DESCRIBE_CONFIGS"):
        calibrate(broker, CalibrationOptions())


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        'kafka_server_Request_request_time{{client_id="{0}",}} {1}',
        'kafka_server_request_request_time{{clientId="{0}"}} {1}',
        'kafka_server_quota_request_time{{resource="Request",user="",client_id="{0}"}} {1}',
        'kafka_server_request_time{{type="Request", client_id="{0}"}} {1}',
    ],
)
def test_calibration_can_read_a_jmx_exporter(form: str) -> None:
    broker = CalibratedBroker(costs=COSTS)

    async def scrape() -> str:
        now_ms = int(trio.current_time() * 1000)
        lines = ["# TYPE kafka_server_exempt_request_time untyped", "kafka_server_exempt_request_time 5.0"]
        lines += [form.format(client_id, budget.rate(now_ms)) for client_id, budget in broker.budgets.items()]
        return "\n".join([*lines, ""])

    def by_jmx(connection: BrokerConnection, broker_versions: NodeApiVersions) -> Probe:
        return JmxProbe(scrape, QuotaProbe(connection, broker_versions, "ANONYMOUS"))

    found = calibrate(broker, CalibrationOptions((ApiKey.HEARTBEAT,), rounds=2, share=1.0), probe=by_jmx)
    left_nothing(broker)
    (one,) = found.found
    assert one.us == pytest.approx([33.0, 33.0], rel=0.03)


def test_calibration_names_the_metric_that_an_exporter_lacks() -> None:
    broker = CalibratedBroker(costs=COSTS)

    async def scrape() -> str:
        return "up 1\n"

    def by_jmx(connection: BrokerConnection, broker_versions: NodeApiVersions) -> Probe:
        return JmxProbe(scrape, QuotaProbe(connection, broker_versions, "ANONYMOUS"))

    with pytest.raises(CalibrationError, match="looked for a metric whose name ends with request_time"):
        calibrate(broker, CalibrationOptions((ApiKey.HEARTBEAT,), rounds=1, share=1.0), probe=by_jmx)
    left_nothing(broker)


def test_calibration_ignores_rates_of_other_clients() -> None:
    said = 'kafka_server_request_request_time{client_id="app"} 3.0\n'
    said += 'kafka_server_request_throttle_time{client_id="weir-calibrate-1"} 4.0\n'
    said += 'kafka_server_request_request_time{client_id="weir-calibrate-2"} NaN\n'
    said += 'kafka_server_request_request_time{client_id="weir-calibrate-3"} 2.5\n'
    assert rates_of(said) == {"weir-calibrate-3": 2.5}


def test_calibration_record_batches_have_kafkas_format() -> None:
    packed = batch(text(20), 1_800_000_000_000, "gzip")
    assert packed.data[22] & 7 == 1
    assert int.from_bytes(packed.data[-4:], "little") == packed.weighed_kb * 1000 - 3 * len(
        packed.data[61:]
    )  # gzip's own ISIZE
