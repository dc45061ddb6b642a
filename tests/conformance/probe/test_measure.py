"""Figures of a measurement, of targets whose behaviour is known: in simulated time, and at a small server."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import pytest
from click.testing import CliRunner

from tests.conformance.probe.quotas.server import PREFIX, Server
from weir.cli.main import weir
from weir.conformance.probe.measure import clients, figures
from weir.conformance.probe.measure.sheet import ByteSheet, Datasheet, parse_sheet
from weir.conformance.probe.quotas import bandwidth
from weir.conformance.probe.quotas.load import Driver, GreedyLoad, MeasuredAnswer
from weir.protocol.api import ApiKey

QUOTA: Final = 1000.0
EVEN: Final = GreedyLoad(QUOTA, even_s=12, settled_s=15, lasts_s=75)
COLD: Final = GreedyLoad(QUOTA, even_s=0, settled_s=0, lasts_s=30)
SIZE: Final = 20


class Bucket:
    """A target in simulated time: a client may be `burst_s` of its rate ahead, and is then muted. After its
    first throttled response it is muted for `silence_s` besides.
    """

    def __init__(self, rate: float, burst_s: float, silence_s: float = 0.0) -> None:
        self.now = 1000.0
        self._rate = rate
        self._burst_s = burst_s
        self._silence_s = silence_s
        self._paid_until = self._muted_until = self.now

    def clock(self) -> float:
        return self.now

    def sleep(self, wait_s: float) -> None:
        self.now += wait_s

    def ask(self) -> MeasuredAnswer:
        self.now = max(self.now + 0.001, self._muted_until)
        self._paid_until = max(self._paid_until, self.now) + SIZE / self._rate
        ahead_s = self._paid_until - self.now - self._burst_s
        if ahead_s > 0:
            ahead_s, self._silence_s = ahead_s + self._silence_s, 0.0
        self._muted_until = self.now + max(0.0, ahead_s)
        return MeasuredAnswer(self.now, SIZE, round(max(0.0, ahead_s) * 1000))


def drive(target: Bucket, load: GreedyLoad) -> list[MeasuredAnswer]:
    return Driver(load, target.clock, target.sleep).drive(target.ask)


@pytest.mark.parametrize("rate", [QUOTA, 0.5 * QUOTA, 3 * QUOTA])
def test_the_rate_of_a_target_is_found_in_each_window(rate: float) -> None:
    found = figures.steady(drive(Bucket(rate, 0.1), EVEN), EVEN)
    assert list(found.rates) == ["1", "10", "60"]
    for spread in found.rates.values():
        assert [spread.least, spread.mean, spread.most] == pytest.approx([rate / QUOTA] * 3, rel=0.03)
    assert found.throttled_s == pytest.approx(60, rel=0.07)  # a request takes 1 of at least 7 ms
    assert found.throttles == pytest.approx(60 * rate / SIZE, rel=0.01)


def test_a_target_without_quotas_throttles_nobody() -> None:
    passed = drive(Bucket(1e9, 10), EVEN)
    found = figures.steady(passed, EVEN)
    assert (found.throttles, found.throttled_s, found.refused) == (0, 0.0, 0)
    assert found.rates["60"].mean == pytest.approx(SIZE / 0.001 / QUOTA, rel=0.01)
    assert figures.start(passed, QUOTA).recovery_s is None


def test_an_even_start_keeps_to_the_quota_and_counts_late_sleeps() -> None:
    target = Bucket(1e9, 10)
    driver = Driver(EVEN, target.clock, lambda wait_s: target.sleep(wait_s + 0.004))
    early = sum(one.units for one in driver.drive(target.ask) if one.at_s < 10)
    assert early == pytest.approx(10 * QUOTA, rel=0.01)
    assert driver.late_s == pytest.approx(0.004)


@pytest.mark.parametrize(("burst_s", "silence_s"), [(10, 0), (2, 0), (10, 7.5)])
def test_the_start_of_an_idle_client_is_measured(burst_s: float, silence_s: float) -> None:
    found = figures.start(drive(Bucket(QUOTA, burst_s, silence_s), COLD), QUOTA)
    assert found.overshoot_s == pytest.approx(burst_s, abs=0.05)
    assert found.recovery_s == pytest.approx(silence_s, abs=0.1)


def test_a_client_that_stays_silent_has_not_recovered() -> None:
    assert figures.start(drive(Bucket(QUOTA, 1, 60), COLD), QUOTA).recovery_s is None


@pytest.mark.parametrize(
    ("units", "fairness"), [([10] * 10, 1.0), ([100] + [0] * 9, 0.1), ([30, 10] * 5, 0.8), ([0] * 10, 0.0)]
)
def test_shares_of_ten_connections_give_jains_index(units: list[float], fairness: float) -> None:
    load = msgspec.structs.replace(EVEN, connections=10)
    found = figures.shared([MeasuredAnswer(20, each, 0, at) for at, each in enumerate(units)], load)
    assert found.fairness == pytest.approx(fairness)
    assert found.most == pytest.approx(10 * max(units) / (sum(units) or 1))


def test_a_client_counts_the_bytes_of_produce_requests_and_throttle_times() -> None:
    load = GreedyLoad(bandwidth.RATE, 0.0, 0.0, 0.2)
    client = clients.MeasuredClient("produce", load, ApiKey.PRODUCE, 9, "producer_byte_rate", 1.0, 4000)
    with Server() as server:
        passed, _ = client.drive(server.stage(), 0, iter([0.0, 0.1, 0.15, 0.3]).__next__)
        used = server.used[PREFIX + "produce"]
    assert [one.units for one in passed] == [used / 2] * 2
    assert passed[0].throttle_ms == 0


def sheet(target: str) -> Datasheet:
    found = figures.steady(drive(Bucket(QUOTA, 0.1), EVEN), EVEN)
    begun = figures.start(drive(Bucket(QUOTA, 10), COLD), QUOTA)
    shared = figures.SharedFigures(1.0, 0.5, 0.25, 2.0)
    return Datasheet(
        target,
        "2026-11-29",
        ByteSheet(found, begun, shared),
        None,
        None,
        None,
        None,
        {"CreateTopics": "6-7"},
        3,
    )


def test_datasheets_are_shown_beside_each_other_without_a_target(tmp_path: Path) -> None:
    files = [tmp_path / "kafka-3.9.1.json", tmp_path / "<weir>.json"]
    for file in files:
        file.write_bytes(msgspec.json.encode(sheet(file.stem)))
        assert parse_sheet(file.read_bytes()).target == file.stem
    page = tmp_path / "page.html"
    baselines = [word for file in files for word in ("--baseline", str(file))]
    command = ["probe", "--profile", "quotas", "--measure", *baselines, "--html", str(page)]
    result = CliRunner().invoke(weir, command)
    assert result.exit_code == 0, result.output
    lines = {line[:34].strip(): line.split()[-2:] for line in result.output.splitlines()}
    assert lines["rate ÷ quota, 60 s"] == ["1.000", "1.000"]
    assert lines["overshoot at the start (s)"] == ["10.0", "10.0"]
    assert lines["ten connections: fairness (Jain)"] == ["0.500", "0.500"]
    assert "&lt;weir&gt;" in page.read_text("utf-8")
    assert CliRunner().invoke(weir, ["probe", "--measure", *baselines]).exit_code == 2
