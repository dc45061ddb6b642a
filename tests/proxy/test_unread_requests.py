"""Requests with bytes left over, and requests that cannot be read: Weir judges both as a broker does.

A broker reads the fields of a request's version and looks at nothing behind them; where the fields make no sense
it closes the connection. So left-over bytes change no charge and no decision, and what Weir cannot read for a
purpose of its own, a charge or a look at names, goes to the broker as it came, and is counted.
"""

from __future__ import annotations

from quotas import Entity, QuotaKey, QuotaTable
from tests.proxy.frames import framed, header
from tests.proxy.playbook import Playbook

MUTATION_RATE = QuotaTable({(Entity(client_id="app"), QuotaKey.CONTROLLER_MUTATION_RATE): 1.0})
ALL_TOPICS_OF_LIBRDKAFKA = bytes.fromhex("00000000" "010000")
"""librdkafka 2.16.1 asks for all topics so, in Metadata v12: a null array of four bytes instead of one, then the
three booleans of v8 to v10 (of which v12 has two) and the tags. Of these seven bytes v12 has four.
"""


def test_librdkafka_asks_for_all_topics_under_a_mutation_quota() -> None:
    asked = framed(header(3, 12, 1, b"app", tags=b"\0") + ALL_TOPICS_OF_LIBRDKAFKA)
    with Playbook(MUTATION_RATE) as play:
        play.client(asked)
        play.to_broker(asked)
