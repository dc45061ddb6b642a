"""Which partitions of a fetch reach the leader: KIP-73's rules of inclusion, fetch by fetch."""

from __future__ import annotations

import pytest

from tests.matrix import in_one_test
from tests.replication.conversation import FOLLOWER, LIMIT, TOPIC, Conversation
from tests.replication.script import LEADER, rate, replicas
from weir.quotas.replication.throttles import Role

VERSIONS = [3, 6, 7, 12, 13, 17]
WITH_SESSIONS = [version for version in VERSIONS if version >= 7]
BOTH = [Role.LEADER, Role.FOLLOWER]


def test_an_offset_named_in_a_fetch_that_weir_answers_reaches_the_leader_with_a_later_fetch() -> None:
    talk = Conversation(17, (rate(Role.LEADER, LIMIT * 10), replicas(Role.LEADER, TOPIC)))
    assert talk.fetch({0: 0}) == {0: 0}
    assert talk.answer({0: 100}) == {0: 100}
    talk.use_up(size=LIMIT * 100)
    assert talk.fetch({0: 5}) is None  # held back: the leader still has offset 0
    assert talk.after(500) is None
    assert talk.told() == {}
    talk.now_ms += 30_000
    assert talk.fetch({}) == {0: 5}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_full_response_has_the_replicas_that_are_held_back_without_records(version: int) -> None:
    talk = Conversation(version, (rate(Role.LEADER, LIMIT), replicas(Role.LEADER, TOPIC, "0:1")))
    talk.fetch({0: 0, 1: 0})
    talk.answer({0: 100, 1: 100}, session_id=0)
    talk.use_up()
    assert talk.fetch({0: 5, 1: 5}) == {1: 5}
    assert talk.answer({1: 100}, session_id=0) == {0: 0, 1: 100}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", BOTH)
def test_the_high_watermark_of_a_new_replica_is_asked_for_while_the_rate_is_exceeded(
    version: int, role: Role
) -> None:
    talk = Conversation(version, (rate(role, 0), replicas(role, TOPIC)))
    assert talk.fetch({0: 1000}) == {0: 1000}
    assert talk.answer({0: 100}) == {0: 0}
    fetched = talk.fetch({0: 1000} if version < 7 else {})
    assert fetched == {0: 1000}, "a replica in sync is held back"
    assert talk.limits[0] == LIMIT


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_the_high_watermark_of_a_replica_that_joins_a_session_is_asked_for(version: int) -> None:
    talk = Conversation(version, (rate(Role.LEADER, 0), replicas(Role.LEADER, TOPIC, "1:1")))
    talk.fetch({0: 0})
    talk.answer({0: 100})
    assert talk.fetch({1: 1000}) == {1: 1000}
    assert talk.answer({1: 100}) == {1: 0}
    assert talk.fetch({}) == {1: 1000}
    assert talk.limits[1] == LIMIT
    assert talk.answer({1: 100}) == {1: 100}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_that_was_held_waits_at_the_leader_only_for_the_time_that_is_left(version: int) -> None:
    talk = Conversation(version, (rate(Role.LEADER, LIMIT), replicas(Role.LEADER, TOPIC)))
    talk.fetch({0: 0})
    talk.answer({0: 0})
    talk.use_up(size=LIMIT * 4 // 10)
    talk.now_ms += 1000
    assert talk.fetch({0: 5}) is None
    assert talk.after(400) == {0: 5}
    assert talk.request.max_wait_ms == 100


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_a_fetch_is_held_for_max_wait_ms_after_a_session_was_restarted_during_a_hold(version: int) -> None:
    everything = replicas(Role.LEADER, TOPIC)
    talk = Conversation(version, (rate(Role.LEADER, LIMIT), everything))
    talk.fetch({0: 0})
    talk.answer({0: 100})
    talk.use_up()
    assert talk.fetch({0: 5}) is None
    talk.throttle((rate(Role.LEADER, LIMIT), everything, replicas(Role.FOLLOWER, TOPIC)))
    assert talk.after(500) is None
    assert talk.told() == {}
    assert talk.response.error_code == 70
    talk.session = (0, 0)
    assert talk.fetch({0: 5}) is None
    assert talk.after(499) is None
    assert talk.told() is None
    assert talk.after(1) is None
    assert talk.told() == {0: 0}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_that_was_held_until_throttles_were_lifted_is_answered_within_max_wait_ms(
    version: int,
) -> None:
    talk = Conversation(version, (rate(Role.LEADER, LIMIT), replicas(Role.LEADER, TOPIC)))
    talk.fetch({0: 0})
    talk.answer({0: 100}, session_id=0)
    talk.use_up(size=2 * LIMIT)
    assert talk.fetch({0: 5}) is None
    talk.throttle(())
    assert talk.after(500) == {0: 5}
    assert talk.request.max_wait_ms == 0


@pytest.mark.parametrize("role", BOTH)
def test_a_rate_of_0_does_not_shorten_the_waits_of_other_replicas_at_the_leader(role: Role) -> None:
    talk = Conversation(17, (rate(role, 0), replicas(role, TOPIC, "0:1,0:2")))
    talk.fetch({0: 0, 1: 0})
    talk.answer({0: 100, 1: 100})
    talk.fetch({1: 5})
    assert talk.request.max_wait_ms == 500


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_a_held_back_replica_that_left_and_joined_again_leaves_the_leaders_session(version: int) -> None:
    everything = replicas(Role.LEADER, TOPIC)
    never = rate(Role.FOLLOWER, 0), replicas(Role.FOLLOWER, TOPIC, f"1:{FOLLOWER}")
    talk = Conversation(version, (rate(Role.LEADER, LIMIT), everything, *never))
    talk.fetch({0: 0, 1: 0})
    talk.answer({0: 100, 1: 0})
    talk.use_up(size=4 * LIMIT)
    for fetched, forgotten in (({0: 5}, (1,)), ({1: 7}, ())):
        assert talk.fetch(fetched, forget=forgotten) is None
        assert talk.after(500) is None
        assert talk.told() == {}
    talk.now_ms += 30_000
    assert talk.fetch({}) == {0: 5}
    assert [topic.partitions for topic in talk.request.forgotten_topics_data] == [[1]]


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_replicas_take_turns_when_the_rate_allows_one_of_them_at_a_time(version: int) -> None:
    talk = Conversation(version, (rate(Role.LEADER, LIMIT), replicas(Role.LEADER, TOPIC)))
    offsets = dict.fromkeys(range(4), 0)
    talk.fetch(offsets)
    talk.answer(dict.fromkeys(range(4), 0))
    talk.use_up(size=LIMIT)
    talk.now_ms += 1000
    named = dict.fromkeys(range(4), 1)
    turns = []
    for _turn in range(8):
        talk.now_ms += 1000
        talk.fetch(named)
        (index,) = talk.limits
        turns.append(index)
        talk.answer({index: LIMIT})
        offsets[index] += 1
        named = {index: offsets[index]}
    assert sorted(turns) == [0, 0, 1, 1, 2, 2, 3, 3]


def exceeded(version: int, lists: str, role: Role, offset: int = 5) -> Conversation:
    """Return a conversation whose replicas have the high watermark 1000, and offset 5 if not told otherwise,
    while the rate of `role` is exceeded.
    """
    talk = Conversation(version, (rate(role, LIMIT), replicas(role, TOPIC, lists)))
    talk.fetch({0: offset, 1: offset})
    talk.answer({0: 0, 1: 0}, session_id=0)
    talk.use_up(role)
    return talk


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", BOTH)
def test_a_listed_replica_out_of_sync_is_left_out_while_its_rate_is_exceeded(
    version: int, role: Role
) -> None:
    broker = LEADER if role is Role.LEADER else FOLLOWER
    for lists in (f"0:{broker}", f"7:{broker},0:{broker},0:9"):
        assert exceeded(version, lists, role).fetch({0: 5, 1: 5}) == {1: 5}


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", BOTH)
def test_replicas_of_other_brokers_and_partitions_in_a_list_change_nothing(version: int, role: Role) -> None:
    other = FOLLOWER if role is Role.LEADER else LEADER
    for lists in (f"0:{other},1:{other}", f"2:{LEADER},2:{FOLLOWER}", "none", ""):
        talk = exceeded(version, lists, role)
        assert talk.fetch({0: 5, 1: 5}) == {0: 5, 1: 5}
        assert (set(talk.limits.values()), talk.request.max_wait_ms) == ({LIMIT}, 500)


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", BOTH)
def test_a_replica_in_sync_is_included_while_its_rate_is_exceeded(version: int, role: Role) -> None:
    for offset in (1000, 1003):
        assert exceeded(version, "*", role).fetch({0: offset, 1: 999}) == {0: offset}


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", BOTH)
def test_the_rate_of_the_other_role_holds_nothing_back(version: int, role: Role) -> None:
    other = Role.FOLLOWER if role is Role.LEADER else Role.LEADER
    talk = Conversation(version, (rate(role, LIMIT), rate(other, LIMIT), replicas(role, TOPIC)))
    talk.fetch({0: 5})
    talk.answer({0: 0}, session_id=0)
    talk.use_up(other)
    assert talk.fetch({0: 5}) == {0: 5}


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
def test_a_replica_listed_in_both_roles_needs_both_rates(version: int) -> None:
    for role in BOTH:
        values = [configure for one in BOTH for configure in (rate(one, LIMIT), replicas(one, TOPIC))]
        talk = Conversation(version, tuple(values))
        talk.fetch({0: 5})
        talk.answer({0: 0}, session_id=0)
        talk.use_up(role)
        assert talk.fetch({0: 5}) is None


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", BOTH)
def test_a_fetch_of_which_everything_is_held_back_is_answered_without_records_after_max_wait_ms(
    version: int, role: Role
) -> None:
    talk = exceeded(version, "*", role)
    assert talk.fetch({0: 5, 1: 6}) is None
    assert talk.after(499) is None
    assert talk.told() is None
    assert talk.after(1) is None
    assert talk.told() == {0: 0, 1: 0}
    assert talk.response.session_id == talk.response.error_code == 0


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", BOTH)
def test_records_of_listed_replicas_are_charged_to_the_roles_that_list_them(version: int, role: Role) -> None:
    talk = Conversation(version, (rate(role, LIMIT), replicas(role, TOPIC, f"0:{LEADER},0:{FOLLOWER}")))
    talk.fetch({0: 0, 1: 0})
    talk.answer({0: 700, 1: 50})
    charged = {key: budget.charged for key, budget in talk.quotas.budgets.items() if budget.charged}
    assert charged == {(role, LEADER if role is Role.LEADER else FOLLOWER): 700}


@pytest.mark.parametrize("leader", [LEADER, LEADER + 5])
def test_a_replica_that_its_follower_forgets_is_not_fetched_any_more(leader: int) -> None:
    """Else a replica that was moved away would be told as stalled. It may be fetched from another leader."""
    talk = Conversation(12, (rate(Role.LEADER, LIMIT), replicas(Role.LEADER, TOPIC)))
    talk.fetch({0: 0, 1: 0})
    talk.answer({0: 100, 1: 100})
    (gone,) = [one for replica, one in talk.quotas.progress.items() if replica.partition == 0]
    gone.leader = leader
    talk.fetch({1: 5}, forget=(0,))
    fetched = {replica.partition for replica, one in talk.quotas.progress.items() if one.is_fetched}
    assert fetched == ({1} if leader == LEADER else {0, 1})


def test_a_forgotten_replica_that_the_leader_does_not_have_is_not_forgotten_there_again() -> None:
    """A fetch that is held is decided about twice."""
    lists = (replicas(Role.LEADER, TOPIC, "1:1"), replicas(Role.FOLLOWER, TOPIC, f"0:{FOLLOWER}"))
    rates = rate(Role.LEADER, LIMIT * 10), rate(Role.FOLLOWER, LIMIT * 10)
    talk = Conversation(12, (*rates, *lists))
    talk.fetch({0: 0, 1: 0})
    talk.answer({0: 100, 1: 100})
    talk.use_up(Role.FOLLOWER)
    assert talk.fetch({1: 5}) == {1: 5}
    assert [topic.partitions for topic in talk.request.forgotten_topics_data] == [[0]]
    talk.answer({1: 100})
    talk.use_up(size=LIMIT * 100)
    assert talk.fetch({}, forget=(0,)) is None
    assert talk.after(500) is None
    assert talk.told() == {}
    talk.now_ms += 30_000
    assert talk.fetch({1: 6}) == {1: 6}
    assert talk.request.forgotten_topics_data == [], "the leader's session has no partition 0"
