"""A percentage of request time holds at every level, for whom it says, enforced and in shadow.

Cold, ten seconds' worth passes: with 50 % five seconds of a thread. Then (rate - 50) / 50 of ten seconds is
to be waited, at most one. Sharing is that of docs/reference/quotas.md, which is Kafka's table but for
prefixes.
"""

import pytest

from weir.quotas import BrokerQuotas, RequestBudget, parse

METADATA = 3
ALICE_APP, ALICE_OTHER, BOB_APP = ("alice", "app-1"), ("alice", "app-2"), ("bob", "app-1")
S = 1_000_000.0
"""In microseconds."""

LEVELS = {
    'user = "alice"\nclient_id = "app-1"': {ALICE_APP},
    'user = "alice"\nclient_id_prefix = "app"': {ALICE_APP, ALICE_OTHER},
    'user = "alice"\nclient_id = "<default>"': {ALICE_APP},
    'user = "alice"': {ALICE_APP, ALICE_OTHER},
    'user = "<default>"\nclient_id = "app-1"': {ALICE_APP},
    'user = "<default>"\nclient_id_prefix = "app"': {ALICE_APP, ALICE_OTHER},
    'user = "<default>"\nclient_id = "<default>"': {ALICE_APP},
    'user = "<default>"': {ALICE_APP, ALICE_OTHER},
    'client_id = "app-1"': {ALICE_APP, BOB_APP},
    'client_id_prefix = "app"': {ALICE_APP, ALICE_OTHER, BOB_APP},
    'client_id = "<default>"': {ALICE_APP, BOB_APP},
}
"""Who shares a budget with alice's app-1, by whom the entry is for."""

each_level = pytest.mark.parametrize(("whom", "sharing"), LEVELS.items(), ids=LEVELS)


def quotas_of(whom: str, mode: str = "enforce") -> BrokerQuotas:
    return BrokerQuotas.create(parse(f'[[quota]]\n{whom}\nrequest_percentage = 50\nmode = "{mode}"\n'))


def charge(quotas: BrokerQuotas, client: tuple[str, str], us: float) -> int:
    return quotas.ledger(*client, 0).charge_request(METADATA, us, 0)


@each_level
def test_a_shadow_request_percentage_counts_and_throttles_no_client(
    whom: str, sharing: set[tuple[str, str]]
) -> None:
    quotas = quotas_of(whom, "shadow")
    clients = (ALICE_APP, ALICE_OTHER, BOB_APP)
    assert [charge(quotas, client, 5.1 * S) for client in clients] == [0, 0, 0]
    shadow = quotas.ledger(*ALICE_APP, 0).shadow
    assert shadow is not None
    assert isinstance(shadow.request, RequestBudget)
    assert shadow.request.charged == pytest.approx(510.0 * len(sharing))
    assert shadow.request.by_api == {METADATA: shadow.request.charged}
    assert shadow.request.throttled == len(sharing)
