"""Files of costs: what they may say, and that what they may not is told in one line."""

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.protocol.scanning.record_batches import PACKED_WEIGHT
from weir.quotas.costs.cost import Cost
from weir.quotas.costs.request_costs import CODECS, ApiCost, ColdCost, CostsError, Overrides, parse, shipped

APIS = frozenset({"Produce", "Fetch", "Metadata"})
PRODUCE = "[apis.Produce]\nus = 1\n"
INSTEAD = "correct it, or leave apis.Produce out for the shipped figures"


def test_a_cost_file_overrides_the_named_apis_only() -> None:
    overrides = parse(
        "format = 1\n[cold]\nus = 1\nfrom_us = 2\nfull_us = 3.5\n"
        "[apis.Produce]\nus = 20\nus_acks_all = 0.5\n[apis.Produce.us_per_unpacked_kb]\ngzip = 7\n",
        APIS,
    )
    ours, table = shipped("3.9"), overrides.over(shipped("3.9"))
    assert table.of("Produce") == ApiCost(us=20.0, us_acks_all=0.5, us_per_unpacked_kb={"gzip": 7.0})
    assert table.cold == ColdCost(us=1.0, from_us=2.0, full_us=3.5)
    assert (table.rest, table.broker, table.source) == (ours.rest, ours.broker, ours.source)
    assert {name: table.of(name) for name in ours.apis if name != "Produce"} == {
        name: cost for name, cost in ours.apis.items() if name != "Produce"
    }
    assert table.of("Nothing") == ours.rest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[apis.Produce]\n", f"apis.Produce: missing key `us`; {INSTEAD}"),
        *(
            (f"[apis.Produce]\nus = {number}\n", f"apis.Produce.us: Expected `float` {bound}; {INSTEAD}")
            for number, bound in (
                ("nan", ">= 0.0"),
                ("-nan", ">= 0.0"),
                ("-1", ">= 0.0"),
                ("-1e-320", ">= 0.0"),
                ("-inf", ">= 0.0"),
                ("inf", "<= 1000000000.0"),
                ("1e10", "<= 1000000000.0"),
                ("1e400", "<= 1000000000.0"),
            )
        ),
        (f"[apis.Produce]\nus = {'9' * 400}\n", f"apis.Produce.us: Number out of range; {INSTEAD}"),
        ("[apis.Produce]\nus = true\n", f"apis.Produce.us: Expected `float`, got `bool`; {INSTEAD}"),
        ('[apis.Produce]\nus = "5"\n', f"apis.Produce.us: Expected `float`, got `str`; {INSTEAD}"),
        ("[apis]\nProduce = 5\n", f"apis.Produce: Expected `object`, got `int`; {INSTEAD}"),
        (f"{PRODUCE}uss = 1\n", f"apis.Produce: unknown key `uss`; {INSTEAD}"),
        (
            f"{PRODUCE}us_per_unpacked_kb = {{brotli = 1}}\n",
            f"apis.Produce.us_per_unpacked_kb: Invalid enum value 'brotli'; {INSTEAD}",
        ),
        (
            f"{PRODUCE}us_per_unpacked_kb = {{gzip = -1}}\n",
            f"apis.Produce.us_per_unpacked_kb[...]: Expected `float` >= 0.0; {INSTEAD}",
        ),
        ("[apis.produce]\nus = 1\n", 'apis: Kafka has no API "produce"; did you mean Produce?'),
        ("[apis.Nope]\nus = 1\n", 'apis: Kafka has no API "Nope"; remove it, or write Kafka\'s name of it'),
        ("apis = 5\n", "apis: Expected `object`, got `int`; correct it"),
        ("[rest]\n", "rest: missing key `us`; correct it"),
        ("[cold]\nus = 1\n", "cold: missing key `from_us`; correct it"),
        ("[cold]\nus = 1\nfrom_us = 1\nfull_us = 0\n", "cold.full_us: Expected `float` > 0.0; correct it"),
        ("format = 2\n", "format: Invalid enum value 2; correct it"),
        ("bogus = 1\n", "unknown key `bogus`; correct it"),
        ('"a\\nb" = 1\n', "unknown key `a b`; correct it"),
        ("source = 2020-01-01\n", "source: Expected `str`, got `date`; correct it"),
    ],
)
def test_cost_file_errors_name_the_place_and_the_remedy(text: str, message: str) -> None:
    with pytest.raises(CostsError) as refused:
        parse(text, APIS)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "text",
    [
        "\x00",
        "us\n",
        "us = 1\nus = 2\n",
        f"us = {'9' * 5000}\n",
        f"us = {'[' * 100_000}",
        f"[{'a.' * 1000}a]\n",
        f"[apis.{'x' * 100_000}]\nus = 1\n",
        f'["{"x" * 100_000}"]\n',
        '[apis."\\n\\u001b[31m"]\nus = 1\n',
    ],
    ids=lambda text: text[:20],
)
def test_a_malformed_cost_file_is_refused_in_one_short_line(text: str) -> None:
    with pytest.raises(CostsError) as refused:
        parse(text, APIS)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


NUMBERS = st.one_of(st.floats(0.0, 1e9), st.sampled_from([0.0, 5e-324, 1e-320, 1e9]))
COSTS = st.builds(
    ApiCost,
    us=NUMBERS,
    us_per_request_kb=NUMBERS,
    us_per_response_kb=NUMBERS,
    us_per_partition=NUMBERS,
    us_acks_all=NUMBERS,
    us_per_unpacked_kb=st.dictionaries(st.sampled_from(CODECS), NUMBERS),
    us_per_session_kb=NUMBERS,
    us_per_converted_kb=NUMBERS,
)
COLDS = st.builds(ColdCost, us=NUMBERS, from_us=NUMBERS, full_us=NUMBERS.filter(bool))


def outcome(text: str) -> Overrides | str:
    try:
        return parse(text, APIS)
    except CostsError as error:
        return str(error)


@given(st.text() | st.text("[]{}=.,\"'\n us1apisProduce-", max_size=40))
def test_parsing_any_text_gives_costs_or_a_one_line_error(text: str) -> None:
    assert isinstance(outcome(text), Overrides) or len(str(outcome(text)).splitlines()) == 1


@given(COSTS, COLDS, st.integers(0, 2**31 - 1), st.integers(-(2**62), 2**62), st.booleans())
def test_any_accepted_costs_give_a_finite_estimate(
    api: ApiCost, cold: ColdCost, length: int, gap_us: int, converted: bool
) -> None:
    cost = Cost(api, cold, converted=converted)
    us = cost.begun_us(length) + cost.cold_us(gap_us) + cost.us_per_response_byte * length
    assert 0.0 <= us < math.inf
    assert 0.0 <= cost.cold_us(gap_us) <= cold.us


@pytest.mark.parametrize("release", ["3.9", "4.2"])
def test_shipped_costs_of_produce_requests_are_near_a_brokers_account(release: str) -> None:
    """The data have the time (µs) of one request, the least of 14 rounds: JMX request-time by thread."""
    with (Path(__file__).parent / "data" / "produce_costs.csv").open() as file:
        rows = list(csv.DictReader(file))
    api = shipped(release).of("Produce")
    by_codec: dict[str, float] = {codec: api.us_per_unpacked_kb.get(codec, 0.0) for codec in CODECS}
    ratios = []
    for row in rows:
        work_bytes = int(row["unpacked"]) + PACKED_WEIGHT * int(row["packed"])
        us_per_kb = by_codec.get(row["codec"], 0.0)
        us = api.us + api.us_per_request_kb * int(row["request"]) / 1000 + us_per_kb * work_bytes / 1000
        ratios.append(us / float(row[release]))
    assert 0.35 < min(ratios) < max(ratios) < 2.2
    assert sum(not 0.5 <= ratio <= 2 for ratio in ratios) <= len(ratios) // 20
