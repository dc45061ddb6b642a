"""How an estimate of request time is judged, fitted and told: no broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.document import DocumentError
from bench.request_time import costs_file, judge, report, truth, weir
from bench.request_time.__main__ import main
from bench.request_time.comparing import Compared
from bench.request_time.features import Tally, coldness, difference, estimate_us
from bench.request_time.fit import fit_api, fit_cold, fit_table, non_negative
from bench.request_time.judge import Figure, Kind
from bench.request_time.measuring import cheapest, table_of
from bench.request_time.runner import Observation
from weir.quotas.costs.cost_fitting import UNPACKED, Sample
from weir.quotas.costs.request_costs import GENERATIONS, ApiCost, ColdCost, CostTable, parse, shipped

COLD = ColdCost(us=50.0, from_us=300.0, full_us=1500.0)


def seen(api: str, us: float, count: float = 100.0, case: str = "c", **each: float) -> Observation:
    """So many requests of this cost."""
    done = {"us": count, **{name: amount * count for name, amount in each.items()}}
    return Observation(case, "client", api, done, us * count, 1.0)


def table(**apis: ApiCost) -> CostTable:
    return CostTable(broker="3.9.1", source="by hand", cold=COLD, rest=ApiCost(us=30.0), apis=apis)


# The truth.


def test_a_measured_rate_times_its_window_is_the_total_request_time() -> None:
    """1 % of a thread for an hour and ten seconds."""
    assert truth.total_us(1.0, 10.0) == pytest.approx(36.1 * 1e6)


def test_jmx_readings_of_request_time_are_parsed() -> None:
    assert truth.parse("a=1.5\nb=x=0.0\nc=1.2E-4\n") == {"a": 1.5, "b=x": 0.0, "c": 0.00012}


def test_malformed_jmx_readings_are_refused() -> None:
    with pytest.raises(truth.TruthError, match="not a client's rate: 'oops'"):
        truth.parse("oops\n")


def test_weirs_charged_request_time_is_summed_over_apis() -> None:
    text = (
        "# TYPE weir_request_time_seconds counter\n"
        'weir_request_time_seconds_total{broker="0",client_id="a",api="Fetch"} 1.5\n'
        'weir_request_time_seconds_total{broker="0",client_id="a",api="Produce"} 0.25\n'
        'weir_request_time_seconds_total{broker="0",client_id="b",api="Produce"} 2.0\n'
        'weir_entity_charged_bytes_total{client_id="a"} 7.0\n'
    )
    assert weir.parse(text) == {"a": 1.75e6, "b": 2e6}


# What was done.


@pytest.mark.parametrize(
    ("gap_us", "share"), [(0, 0.0), (299, 0.0), (300, 0.2), (750, 0.5), (1500, 1.0), (1e9, 1.0)]
)
def test_idle_time_makes_a_broker_colder(gap_us: float, share: float) -> None:
    assert coldness(gap_us, COLD) == pytest.approx(share)


def test_the_first_request_finds_a_cold_broker() -> None:
    tally = Tally(COLD)
    assert tally.sent(100.0) == 1.0
    assert tally.sent(100.0001) == 0.0
    assert tally.sent(100.00085) == pytest.approx(0.5)


def test_a_request_time_estimate_is_a_sum_of_its_terms() -> None:
    cost = ApiCost(us=20.0, us_per_request_kb=2.0, us_acks_all=5.0, us_per_unpacked_kb={"gzip": 3.0})
    done = {"us": 10.0, "us_per_request_kb": 100.0, "us_acks_all": 4.0, UNPACKED["gzip"]: 7.0, "cold": 1.5}
    assert estimate_us(done, cost, table()) == 200 + 200 + 20 + 21 + 75


def test_work_between_two_readings_is_their_difference() -> None:
    assert difference({"us": 5.0, "cold": 1.0}, {"us": 2.0}) == {"us": 3.0, "cold": 1.0}


# Fitting.


def test_a_fit_of_exact_samples_finds_the_true_coefficients() -> None:
    rows = [Sample(20.0 + 1.5 * kb, {"us": 1.0, "kb": kb}) for kb in (0.1, 16.0, 1000.0)]
    found = non_negative(rows, ["us", "kb"])
    assert found["us"] == pytest.approx(20.0, rel=1e-3)
    assert found["kb"] == pytest.approx(1.5, rel=1e-3)


def test_a_fit_gives_no_negative_coefficient() -> None:
    """Larger requests that cost less: the best that is allowed is that size does not matter."""
    falling = [Sample(20.0, {"us": 1.0, "kb": 0.0}), Sample(10.0, {"us": 1.0, "kb": 10.0})]
    found = non_negative(falling, ["us", "kb"])
    assert found["kb"] == 0.0
    assert 10.0 < found["us"] < 20.0


def test_the_cost_of_an_idle_broker_is_subtracted_before_an_api_is_fitted() -> None:
    cost = fit_api("Heartbeat", [seen("Heartbeat", 40.0, cold=0.4, us_per_request_kb=0.1)], COLD)
    assert cost == ApiCost(us=20.0)


def test_request_sizes_that_hardly_differ_give_no_cost_per_kb() -> None:
    observations = [
        seen("Heartbeat", 20.0, us_per_request_kb=0.1),
        seen("Heartbeat", 30.0, us_per_request_kb=0.2),
    ]
    cost = fit_api("Heartbeat", observations, COLD)
    assert cost is not None
    assert cost.us_per_request_kb == 0.0


def test_produce_is_fitted_with_partitions_acks_and_compression() -> None:
    unpacking = seen("Produce", 20.0 + 2000.0, us_per_request_kb=0.1)
    unpacking = replace(unpacking, done={**unpacking.done, UNPACKED["gzip"]: 1000.0 * unpacking.requests})
    observations = [
        seen("Produce", 20.0, us_per_request_kb=0.1),
        seen("Produce", 20.0 + 5.0 * 9, us_per_request_kb=0.1, us_per_partition=9.0),
        seen("Produce", 20.0 + 24.0, us_per_request_kb=0.1, us_acks_all=1.0),
        unpacking,
    ]
    cost = fit_api("Produce", observations, COLD)
    assert cost is not None
    assert cost.us == pytest.approx(20.0, rel=0.01)
    assert cost.us_per_partition == pytest.approx(5.0, rel=0.01)
    assert cost.us_acks_all == pytest.approx(24.0, rel=0.01)
    assert cost.us_per_unpacked_kb == pytest.approx({"gzip": 2.0}, rel=0.01)


def test_partitions_that_a_fetch_session_omits_have_a_cost_per_kb() -> None:
    observations = [
        seen("Fetch", 30.0, us_per_request_kb=0.1),
        seen("Fetch", 530.0, us_per_request_kb=10.1),
        seen("Fetch", 80.0, us_per_request_kb=0.1, us_per_session_kb=10.0),
    ]
    cost = fit_api("Fetch", observations, COLD)
    assert cost is not None
    assert cost.us_per_request_kb == pytest.approx(50.0, rel=0.01)
    assert cost.us_per_session_kb == pytest.approx(5.0, rel=0.01)
    estimate = estimate_us(observations[2].done, cost, table())
    assert estimate == pytest.approx(observations[2].truth_us, rel=0.01)


def test_an_api_with_few_requests_is_not_fitted() -> None:
    assert fit_api("EndTxn", [seen("EndTxn", 900.0, count=3.0)], COLD) is None


def test_the_cost_of_an_idle_broker_is_a_median() -> None:
    busy = [seen("Metadata", 20.0)]
    idle = [seen("Metadata", us, cold=1.0) for us in (50.0, 60.0, 500.0)]
    assert fit_cold(idle, busy, COLD).us == 40.0
    assert fit_cold([], busy, COLD) == COLD


def test_the_cost_of_unmeasured_apis_is_the_median_of_read_only_apis() -> None:
    fitted = fit_table(
        [
            seen("Heartbeat", 10.0),
            seen("ListGroups", 30.0),
            seen("Metadata", 20.0),
            seen("CreateTopics", 900.0),
        ],
        COLD,
        "3.9.1",
        "by hand",
    )
    assert fitted.rest.us == 20.0
    assert fitted.apis["CreateTopics"].us == 900.0


def test_the_cheapest_round_is_fitted() -> None:
    cheap, dear = seen("Metadata", 10.0), seen("Metadata", 30.0)
    assert cheapest([[dear], [cheap], [dear]]) == [cheap]


# Files.


def test_a_request_cost_file_reads_back_as_it_was_written() -> None:
    written = table(
        Produce=ApiCost(us=21.7, us_per_request_kb=1.56, us_per_unpacked_kb={"gzip": 2.5, "zstd": 0.5}),
        Fetch=ApiCost(us=16.2, us_per_session_kb=20.0, us_per_converted_kb=1.1),
    )
    read = parse(costs_file.write(written), frozenset({"Produce", "Fetch"}))
    assert read.over(table()) == written


@pytest.mark.parametrize("generation", GENERATIONS)
def test_shipped_request_costs_survive_writing_and_reading(generation: str) -> None:
    found = shipped(generation)
    assert found.broker.startswith(f"{generation}.")
    assert parse(costs_file.write(found), frozenset(found.apis)).over(table()) == found


# Judging.


def figure(name: str, ratio: float, truth_us: float = 1000.0) -> Figure:
    return Figure(name, 10.0, 2.0, truth_us, ratio * truth_us)


def test_request_time_errors_are_compared_with_their_targets() -> None:
    kinds = {
        "a": Kind(),
        "b": Kind(),
        "over": Kind(overloaded=True),
        "gzip": Kind(compressed=True),
        judge.LONG_POLLS: Kind(idle=True),
    }
    figures = [
        figure("a", 0.9),
        figure("b", 2.1),
        figure("over", 0.1),
        figure("gzip", 0.45),
        figure(judge.LONG_POLLS, 1.0, 2 * 0.004 * 1e6),
    ]
    found = {verdict.target: verdict for verdict in judge.verdicts(figures, kinds)}
    busy, packed, error, polls = found.values()
    assert not busy.reached
    assert busy.found == "0.90 to 2.10; not b 2.10"
    assert packed.reached
    assert not error.reached
    assert error.found == "60% of 2"
    assert polls.reached
    assert polls.found == "0.40 % (truth 0.40 %)"


def test_evaluation_without_measurements_gives_no_verdicts() -> None:
    assert judge.verdicts([], {}) == []


def test_a_clients_request_time_is_summed_over_its_apis() -> None:
    pairs = [
        (seen("Fetch", 10.0), 900.0),
        (seen("OffsetCommit", 30.0), 1100.0),
        (seen("Metadata", 1.0, 0.0), 5.0),
    ]
    whole = judge.by_client(pairs)
    assert whole is not None
    assert (whole.requests, whole.truth_us, whole.estimate_us) == (200.0, 4000.0, 2000.0)
    assert [part.name for part in judge.by_api(pairs)] == ["OffsetCommit", "Fetch"]


def test_the_evaluation_table_agrees_with_the_json_record() -> None:
    pairs = [(seen("Fetch", 10.0, case="mixed"), 900.0), (seen("OffsetCommit", 30.0, case="mixed"), 1100.0)]
    compared = Compared("3.9.1")
    compared.pairs["weir"]["mixed"] = pairs
    (shown,) = report.tables(compared, apis=True)
    assert [line[0] for line in shown.lines] == ["mixed", "… OffsetCommit", "… Fetch"]
    assert list(shown.lines[0]) == ["mixed", "200", "20.0", "0.40", "0.20", "0.50"]
    kept = report.as_json(compared, {"mixed": Kind()})
    assert kept["clients"][0]["estimate_us"] == 2000.0
    assert [target["reached"] for target in kept["targets"]] == [True, False]


def test_measured_and_shipped_costs_are_shown_side_by_side() -> None:
    old = table(Produce=ApiCost(us=20.0, us_acks_all=24.0))
    new = table(Produce=ApiCost(us=22.0, us_per_unpacked_kb={"gzip": 2.0}), Fetch=ApiCost(us=16.0))
    lines = [list(line) for line in report.costs(old, new).lines]
    assert lines[0] == ["Fetch", "-", "16"]
    assert lines[1] == ["Produce", "20 + 24 for acks=all", "22 + 2 / kB of gzip"]


def test_observations_with_error_responses_are_not_fitted() -> None:
    fine, refused = seen("ListGroups", 20.0), seen("DescribeCluster", 5.0)
    found = table_of([fine, replace(refused, errors=("UNSUPPORTED_VERSION",))], "3.9.1", "by hand")
    assert set(found.apis) == {"ListGroups"}


# The command.


def test_ratios_of_all_brokers_are_shown_side_by_side() -> None:
    old, new = Compared("1.1.1"), Compared("3.9.1")
    old.pairs["direct"]["mixed"] = [(seen("Fetch", 10.0, case="mixed"), 900.0)]
    new.pairs["direct"]["mixed"] = [(seen("Fetch", 10.0, case="mixed"), 1100.0)]
    new.pairs["weir"]["metadata"] = [(seen("Metadata", 10.0, case="metadata"), 500.0)]
    shown = report.overview([old, new])
    assert list(shown.head) == ["client", "1.1.1, direct", "3.9.1, direct", "3.9.1, weir"]
    assert [list(line) for line in shown.lines] == [
        ["mixed", "0.90", "1.10", "-"],
        ["metadata", "-", "-", "0.50"],
    ]


@pytest.mark.parametrize(
    ("option", "known"),
    [
        ("--brokers", "1.1.1, 2.8.2, 3.9.1, 4.2.0"),
        ("--ways", "direct, weir"),
        ("--workloads", "produce-small, "),
    ],
)
def test_unknown_option_values_are_refused_before_a_broker_starts(option: str, known: str) -> None:
    done = CliRunner().invoke(main, [option, "oops"])
    assert done.exit_code == 2
    assert f"oops; known: {known}" in " ".join(done.output.replace("│", " ").split())


def test_a_document_without_a_place_for_figures_is_refused_before_a_broker_starts(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no place")
    done = CliRunner().invoke(main, ["--document", str(page)])
    assert isinstance(done.exception, DocumentError)
