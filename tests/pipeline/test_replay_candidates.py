"""Candidate quota files: names, unreadable files, and the budgets of clients. No test runs Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.pipeline.outcome import PipelineError
from weir.pipeline.replay.candidates import Candidate, _draws, not_replayed, read_candidates
from weir.quotas import BrokerQuotas, Budget, MutationBudget, parse
from weir.quotas.table.bounded_names import NAME_CHARS_MAX, shortened
from weir.quotas.table.options import Pacing

SOME = '[[quota]]\nuser = "alice"\nproducer_byte_rate = 1000\n'
LEVELS = """
[[quota]]
user = "alice"
client_id = "app"
producer_byte_rate = 1
[[quota]]
user = "alice"
client_id_prefix = "etl-"
producer_byte_rate = 2
consumer_byte_rate = 3
[[quota]]
user = "<default>"
consumer_byte_rate = 4
request_percentage = 5
[[quota]]
client_id = "<default>"
controller_mutation_rate = 6
"""


def file(directory: Path, name: str, text: str = SOME) -> Path:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_replay_candidates_are_named_after_their_files(tmp_path: Path) -> None:
    found = read_candidates([file(tmp_path, "a.toml"), file(tmp_path, "b.toml")])
    assert found == [Candidate("a.toml", SOME), Candidate("b.toml", SOME)]


def test_replay_candidates_with_equal_file_names_are_named_by_path(tmp_path: Path) -> None:
    one, other = file(tmp_path / "x", "q.toml"), file(tmp_path / "y", "q.toml")
    assert [found.name for found in read_candidates([one, other])] == [str(one), str(other)]


def test_replay_candidates_named_twice_or_recorded_get_a_number(tmp_path: Path) -> None:
    one, recorded = file(tmp_path, "q.toml"), file(tmp_path, "recorded")
    names = [found.name for found in read_candidates([one, one, recorded])]
    assert names == [str(one), f"{one} #2", "recorded #2"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[[quota]]\nproducer_byte_rate = 1\n", "does not say whom it is for"),
        (b"\xff", "not UTF-8"),
        (b"quota", "not valid TOML"),
    ],
)
def test_a_malformed_replay_candidate_is_named(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(PipelineError, match=told) as caught:
        read_candidates([path])
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_replay_candidate_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"missing\.toml: No such file or directory"):
        read_candidates([tmp_path / "missing.toml"])


def test_replay_reports_quotas_that_records_cannot_reproduce() -> None:
    text = SOME + (
        '[[quota]]\ntopic = "t"\nproducer_byte_rate = 1\n'
        '[[quota]]\ntopic_prefix = "p."\ntopics_max = 1\nstored_bytes_max = "2TB"\n'
        '[[quota]]\nip = "<default>"\nconnection_creation_rate = 1\n'
        '[[quota]]\nuser = "bob"\nmode = "shadow"\nproducer_byte_rate = 1\nconsumer_byte_rate = 1\n'
    )
    assert not_replayed(Candidate("q", text)) == [
        "q: 2 shadow entries (they throttle no client) left out",
        "q: 1 rates of topics (records have no topics) left out",
        "q: 2 limits on what exists (records have no topics) left out",
        "q: 1 rates of connections (records have no addresses) left out",
    ]
    assert not_replayed(Candidate("q", SOME)) == []


@given(
    st.sampled_from(["alice", "bob", "", "x" * 300]),
    st.sampled_from(["app", "etl-", "etl-7", "other", "", "y" * 300]),
    st.sampled_from(["", "<empty>"]),
)
def test_replayed_clients_use_the_budgets_that_a_broker_would_use(
    user: str, client_id: str, unnamed: str
) -> None:
    """Records have shortened names, so a client with the shortened name has the same budget."""
    long = (
        SOME.replace("alice", "x" * 300) + f'[[quota]]\nclient_id = "{"y" * 300}"\nrequest_percentage = 9\n'
    )
    quotas = BrokerQuotas.create(parse(LEVELS + long), unnamed=unnamed)
    ledger = quotas.ledger(user, client_id, 0)
    mutations = quotas.mutation_ledger(user, client_id, 0)
    budgets = {
        "producer_byte_rate": ledger.produce,
        "consumer_byte_rate": ledger.fetch,
        "request_percentage": ledger.request,
        "controller_mutation_rate": mutations and mutations.enforced,
    }
    at_a_broker = {
        (key, tuple(once(name) for name in budget.tags[:3]), budget.limit)
        for key, budget in budgets.items()
        if isinstance(budget, Budget | MutationBudget)
    }
    names = shortened(user), shortened(client_id), unnamed
    drawn = _draws([Candidate("q", LEVELS + long)], *names, Pacing.KAFKA)
    assert {(row[1], row[4:7], row[8]) for row, _chain in drawn} == at_a_broker


def test_replayed_clients_have_the_pacing_and_the_scope_of_their_entry() -> None:
    text = (
        '[[quota]]\nuser = "alice"\nproducer_byte_rate = 1\npacing = "kafka"\nscope = "cluster"\n'
        '[[quota]]\nuser = "bob"\nproducer_byte_rate = 1\n'
    )
    found = [list(_draws([Candidate("q", text)], user, "", "", Pacing.SMOOTH)) for user in ("alice", "bob")]
    drawn = [row[9:11] for rows in found for row, _chain in rows]
    assert drawn == [("kafka", "cluster"), ("smooth", "broker")]


def test_replay_knows_the_limit_in_force_of_the_same_budget_only() -> None:
    quotas = '[[quota]]\nuser = "alice"\nproducer_byte_rate = {}\n'
    other = '[[quota]]\nuser = "alice"\nclient_id = "app"\nproducer_byte_rate = 3\n'
    files = [Candidate("a", quotas.format(1)), Candidate("b", quotas.format(2)), Candidate("c", other)]
    drawn = list(_draws(files, "alice", "app", "", Pacing.KAFKA))
    assert [(row[0], row[8], row[11]) for row, _chain in drawn] == [("a", 1, 1), ("b", 2, 1), ("c", 3, None)]


def once(name: str) -> str:
    """Return a long name shortened; shortened names have one length and end with a digest."""
    return name if len(name) == NAME_CHARS_MAX + 1 else shortened(name)
