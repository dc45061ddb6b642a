"""Fitting coefficients: what made the samples is found, nothing is negative, and files say it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.quotas.costs.cost_file import render
from weir.quotas.costs.cost_findings import Readings, findings
from weir.quotas.costs.cost_fitting import Sample, estimate_us, fit
from weir.quotas.costs.request_costs import ApiCost, ColdCost, CostTable, parse

NAMES = ("us", "us_per_request_kb", "us_per_partition", "us_acks_all")
SHAPES = [(1, 0.2, 0, 0), (1, 16.0, 0, 0), (1, 200.0, 0, 0), (1, 2.9, 15, 0), (1, 0.2, 0, 1)]
OLD = CostTable(
    broker="3.9.1",
    source="by hand",
    cold=ColdCost(us=55.0, from_us=300.0, full_us=1500.0),
    rest=ApiCost(us=30.0),
    apis={
        "Produce": ApiCost(us=20.0, us_per_unpacked_kb={"lz4": 2.0}),
        "Heartbeat": ApiCost(us=17.0),
        "JoinGroup": ApiCost(us=100.0, us_per_request_kb=1.0),
    },
)


def samples(coefficients: dict[str, float]) -> list[Sample]:
    features = [dict(zip(NAMES, map(float, shape), strict=True)) for shape in SHAPES]
    return [Sample(estimate_us(each, coefficients), each) for each in features]


@given(st.tuples(st.floats(1, 300), *(st.floats(0, 50) for _ in NAMES[1:])))
def test_fitting_recovers_the_coefficients_of_exact_samples(values: tuple[float, ...]) -> None:
    truth = dict(zip(NAMES, values, strict=True))
    # A coefficient that explains less than a millionth of a sample's cost (here at most 360) may be left out.
    assert fit(samples(truth), NAMES) == pytest.approx(truth, rel=1e-5, abs=4e-4)


@given(
    st.tuples(st.floats(1, 300), *(st.floats(0, 50) for _ in NAMES[1:])),
    st.lists(st.floats(0.5, 2.0), min_size=5, max_size=5),
)
def test_fitting_noisy_samples_gives_no_negative_coefficient(
    values: tuple[float, ...], noise: list[float]
) -> None:
    truth = dict(zip(NAMES, values, strict=True))
    noisy = [
        Sample(each.us * factor, each.features) for each, factor in zip(samples(truth), noise, strict=True)
    ]
    assert min(fit(noisy, NAMES).values()) >= 0


def test_fitting_a_cost_that_falls_with_size_gives_no_cost_per_kb() -> None:
    falling = [
        Sample(30.0, {"us": 1, "us_per_request_kb": 1}),
        Sample(20.0, {"us": 1, "us_per_request_kb": 10}),
    ]
    found = fit(falling, ("us", "us_per_request_kb"))
    # Least squares of relative errors: a/30 and a/20 nearest to 1, a = (1/30 + 1/20) / (1/900 + 1/400).
    assert found == pytest.approx({"us": (1 / 30 + 1 / 20) / (1 / 900 + 1 / 400), "us_per_request_kb": 0.0})


@pytest.mark.parametrize(
    ("api", "shipped", "twice"),
    [
        (
            "Fetch",
            ApiCost(us=10.0, us_per_session_kb=40.0, us_per_converted_kb=1.0),
            ApiCost(us=20.0, us_per_session_kb=80.0, us_per_converted_kb=2.0),
        ),
        (
            "DescribeGroups",
            ApiCost(us=20.0, us_per_response_kb=3.0),
            ApiCost(us=40.0, us_per_response_kb=6.0),
        ),
    ],
)
def test_coefficients_without_readings_are_scaled(api: str, shipped: ApiCost, twice: ApiCost) -> None:
    """A file has an API whole: what it left out would be free."""
    old = CostTable(broker="x", source="y", cold=OLD.cold, rest=OLD.rest, apis={api: shipped})
    found = findings([Readings(api, [twice.us] * 3, {"us": 1.0})], {api: ("us",)}, old)
    assert found.overrides("3.9.1", "by hand", old).apis[api] == twice


def test_calibration_readings_become_a_cost_file_that_parses_to_their_costs() -> None:
    readings = [
        Readings("Heartbeat", [34.0, 33.0, 36.0], {"us": 1.0}),
        Readings("Produce", [40.0, 40.0, 40.0], {"us": 1.0, "us_per_request_kb": 0.0}),
        Readings("Produce", [140.0, 140.0, 140.0], {"us": 1.0, "us_per_request_kb": 100.0}),
        Readings("Heartbeat", [134.0, 144.0, 124.0], {"us": 1.0}, gap_us=3000.0),
    ]
    names = {"Heartbeat": ("us",), "Produce": ("us", "us_per_request_kb", "us_acks_all")}
    found = findings(readings, names, OLD)
    assert found.ratio == pytest.approx(2.0)  # 34/17, 40/20, 140/20
    text = render(found.overrides("3.9.1", "by hand", OLD), ["a comment"], {"JoinGroup": "scaled"})
    written = parse(text, frozenset(OLD.apis))
    assert written.apis["Heartbeat"] == ApiCost(us=34.0)
    assert written.apis["Produce"] == ApiCost(us=40.0, us_per_request_kb=1.0, us_per_unpacked_kb={"lz4": 4.0})
    assert written.apis["JoinGroup"] == ApiCost(us=200.0, us_per_request_kb=2.0)
    assert written.rest == ApiCost(us=60.0)
    assert written.cold == ColdCost(us=100.0, from_us=300.0, full_us=1500.0)
    heartbeat = next(one for one in found.coefficients if one.api == "Heartbeat")
    assert (heartbeat.old, heartbeat.low, heartbeat.high) == (17.0, 33.0, 36.0)
    assert text.startswith("# a comment\n")
    assert "[apis.JoinGroup] # scaled" in text
    assert text.endswith("\n")
