"""Which partitions of a fetch reach the leader: KIP-73's rules of inclusion, fetch by fetch."""

from __future__ import annotations

import pytest

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
