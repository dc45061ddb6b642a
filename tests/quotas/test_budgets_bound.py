"""Client-ids can be invented without end: budgets stay bounded, and nobody escapes a quota that way."""

import pytest

from tests.quotas.changes import put_in_force
from weir.quotas import DEFAULT, BrokerQuotas, Budget, ClientQuotas, Entity, QuotaKey, QuotaTable, Tags
from weir.quotas.client_quotas import byte_rates
from weir.quotas.limiters.limiter import UNLIMITED
from weir.quotas.registry import EXAMINED_MAX, IDLE_MS_MAX, ROOM_PAUSE_MS
from weir.quotas.table.bounded_names import NAME_CHARS_MAX, OVERFLOW, shortened

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
ANY_APP, APP = Entity(client_id=DEFAULT), Entity(client_id="app")
ANY_USER, ALICES_APPS = Entity(DEFAULT), Entity("alice", DEFAULT)
MOST = 50
REST_MS = 11_000
"""After that a charge counts no more: 11 windows of one second."""


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.quotas.registry.LIMITERS_MAX", MOST)
    monkeypatch.setattr("weir.quotas.registry.SLICE", 7)


def quotas_of(*limits: tuple[Entity, float]) -> ClientQuotas[Budget]:
    quotas = byte_rates(PRODUCE)
    put_in_force(quotas, QuotaTable({(whom, PRODUCE): value for whom, value in limits}))
    return quotas


def budget_of(quotas: ClientQuotas[Budget], client_id: str, now_ms: int = 0, user: str = "u") -> Budget:
    budget = quotas.budget(user, client_id, now_ms)
    assert budget is not None
    return budget


def fill(quotas: ClientQuotas[Budget], now_ms: int = 0, value: float = 1) -> None:
    """As many clients as there is room for, each of which has just been charged."""
    number = 0
    while len(quotas) < MOST:
        budget_of(quotas, f"filler-{now_ms}-{number}", now_ms).charge(value, now_ms)
        number += 1


def test_invented_client_ids_take_no_more_memory_than_the_bound() -> None:
    quotas = quotas_of((ANY_APP, 1000.0))
    most = 0
    for number in range(20 * MOST):
        now_ms = number * 10
        budget_of(quotas, f"invented-{number}", now_ms).charge(1, now_ms)
        most = max(most, len(list(quotas)))
    assert most == MOST + 1, "one for the overflow"


def test_newcomers_are_counted_and_never_wait_while_all_budgets_are_in_use() -> None:
    """A client that fills the registry with invented names must not lock strangers out."""
    quotas = quotas_of((ANY_APP, 1000.0))
    fill(quotas)
    first, second = budget_of(quotas, "first"), budget_of(quotas, "second")
    assert first is second
    assert (first.tags, first.limit) == (Tags("u", OVERFLOW), UNLIMITED)
    assert (first.charge(1e9, 0), first.charged, first.throttled) == (0, 1e9, 0)


def test_newcomers_of_different_users_share_no_overflow_budget() -> None:
    quotas = quotas_of((ANY_APP, 1000.0))
    fill(quotas)
    assert budget_of(quotas, "x", user="alice") is not budget_of(quotas, "x", user="bob")


def test_a_users_own_budget_has_room_however_many_names_were_invented() -> None:
    quotas = quotas_of((ANY_USER, 3.0), (ANY_APP, 1000.0))
    for number in range(2 * MOST):
        budget_of(quotas, "x", user=f"user-{number}").charge(1, 0)
    late = budget_of(quotas, "x", user="late")
    assert (late.tags, late.limit) == (Tags("late", ""), 3.0)


def test_names_without_a_charge_give_their_places_to_newcomers() -> None:
    quotas = quotas_of((ANY_APP, 1000.0))
    for number in range(3 * MOST):
        budget_of(quotas, f"only-named-{number}", number * ROOM_PAUSE_MS)
    assert len(quotas) <= MOST
    own = budget_of(quotas, "newcomer", 3 * MOST * ROOM_PAUSE_MS)
    assert (own.tags, own.limit) == (Tags("", "newcomer"), 1000.0)


def test_a_client_cannot_give_itself_the_overflow_budget() -> None:
    quotas = quotas_of((ANY_APP, 1000.0))
    assert budget_of(quotas, OVERFLOW).charge(1e6, 0) > 0
    fill(quotas)
    assert budget_of(quotas, OVERFLOW) is not budget_of(quotas, "newcomer")


def test_new_clients_get_separate_budgets_once_existing_ones_are_idle() -> None:
    quotas = quotas_of((ANY_APP, 1000.0))
    fill(quotas)
    overflow, generation = budget_of(quotas, "newcomer"), quotas.generation
    assert budget_of(quotas, "newcomer", REST_MS - 1) is overflow
    assert quotas.generation == generation
    sum(quotas.expire(REST_MS - 1 + ROOM_PAUSE_MS))
    assert quotas.generation > generation, "sessions that keep the overflow's budget look again"
    own = budget_of(quotas, "newcomer", REST_MS + ROOM_PAUSE_MS)
    assert own.tags == Tags("", "newcomer")


def test_a_lookup_that_evicts_budgets_raises_the_generation() -> None:
    table = QuotaTable({(ANY_APP, PRODUCE): 1000.0})
    quotas = BrokerQuotas.create(table)
    fill(quotas.produce)
    former = list(quotas.produce)
    generation = quotas.generation
    ledger = quotas.ledger("u", "newcomer", REST_MS)
    assert isinstance(ledger.produce, Budget)
    assert ledger.produce.tags == Tags("", "newcomer")
    assert quotas.generation > generation
    assert sum(quotas.produce.known(limiter.tags) is not limiter for limiter in former) == 1


def test_a_budget_in_use_survives_any_number_of_invented_client_ids() -> None:
    """What was used, and the wait that follows from it, cannot be shaken off."""
    quotas = quotas_of((ANY_APP, 1000.0))
    used, waiting = budget_of(quotas, "used"), budget_of(quotas, "waiting")
    wait_ms = waiting.charge(100_000, 0)
    assert wait_ms > 2 * REST_MS
    for now_ms in range(0, wait_ms, 100):
        used.charge(1, now_ms)
        for number in range(5):
            budget_of(quotas, f"{now_ms}-{number}", now_ms).charge(1, now_ms)
        assert budget_of(quotas, "used", now_ms) is used
        assert budget_of(quotas, "waiting", now_ms) is waiting
    assert len(quotas) <= MOST + 1


def test_a_client_named_in_the_quota_table_always_has_a_separate_budget() -> None:
    quotas = quotas_of((ANY_APP, 1000.0), (APP, 7.0))
    fill(quotas)
    assert (budget_of(quotas, "app").tags, budget_of(quotas, "app").limit) == (Tags("", "app"), 7.0)
    assert budget_of(quotas, "other").tags == Tags("u", OVERFLOW)


def test_a_new_limit_reaches_shortened_names_and_no_overflow_budget() -> None:
    quotas = quotas_of((ANY_APP, 1000.0))
    long = budget_of(quotas, "x" * 5000)
    long.charge(1, 0)
    fill(quotas)
    overflow = budget_of(quotas, "newcomer")
    put_in_force(quotas, QuotaTable({(ANY_APP, PRODUCE): 9.0}))
    assert (overflow.limit, long.limit) == (UNLIMITED, 9.0)


def test_look_ups_see_new_limits_before_they_have_reached_all_budgets() -> None:
    quotas = quotas_of((ANY_APP, 1000.0))
    fill(quotas)
    budgets = list(quotas)
    quotas.use(QuotaTable({(ANY_APP, PRODUCE): 9.0}))
    assert budget_of(quotas, "filler-0-30").limit == 9.0
    assert sum(budget.limit == 9.0 for budget in budgets) == 1
    steps = [sum(budget.limit == 9.0 for budget in budgets) for _step in quotas.refresh()]
    assert steps == [8, 15, 22, 29, 35, 42, 49, 50], "slices of seven, one of which had one already"


def test_a_budget_whose_client_still_waits_is_not_forgotten() -> None:
    """An hour without a charge is no reason: reconnecting after it would end the wait."""
    quotas = quotas_of((ANY_APP, 1.0))
    waiting = budget_of(quotas, "waiting")
    wait_ms = waiting.charge(10_000, 0)
    assert wait_ms > IDLE_MS_MAX
    assert sum(quotas.expire(IDLE_MS_MAX)) == 0
    assert budget_of(quotas, "waiting", IDLE_MS_MAX) is waiting
    assert sum(quotas.expire(wait_ms)) == 1


def test_each_look_up_at_a_full_registry_examines_few_limiters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search through 100,000 limiters at once stopped a worker for 15 ms, each second of an attack."""
    quotas = quotas_of((ANY_APP, 1000.0))
    fill(quotas)
    examined: list[int] = []
    is_idle = Budget.is_idle

    def counted(budget: Budget, now_ms: int) -> bool:
        examined.append(1)
        return is_idle(budget, now_ms)

    monkeypatch.setattr(Budget, "is_idle", counted)
    lengths, generation = [], quotas.generation
    for number in range(5 * MOST):
        tags = budget_of(quotas, f"newcomer-{number}", REST_MS + 100 * number).tags
        assert tags.client_id != OVERFLOW or 100 * number < ROOM_PAUSE_MS, "all others are idle"
        lengths.append(len(examined))
        examined.clear()
    assert max(lengths) <= 2 * EXAMINED_MAX
    assert quotas.generation - generation <= 5 * MOST * 100 / ROOM_PAUSE_MS, "connections rarely look up"


def test_a_limiter_that_is_looked_up_before_it_leaves_stays() -> None:
    quotas = quotas_of((ANY_APP, 1000.0))
    fill(quotas)
    held = {f"filler-0-{number}": budget_of(quotas, f"filler-0-{number}") for number in range(MOST)}
    budget_of(quotas, "newcomer", REST_MS)  # generation has grown: connections look up again
    kept = {name for name, limiter in held.items() if budget_of(quotas, name, REST_MS) is limiter}
    for number in range(MOST):
        budget_of(quotas, f"newcomer-{number}", REST_MS)
    assert all(quotas.known(held[name].tags) is held[name] for name in kept)


def test_an_expiry_selects_a_bounded_number_of_idle_limiters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.quotas.registry.ROOM_MAX", 10)
    quotas = quotas_of((ANY_APP, 1000.0))
    fill(quotas)
    budget_of(quotas, "newcomer").charge(1, REST_MS)
    assert sum(quotas.expire(REST_MS)) == 0, "selected, not forgotten for being idle for an hour"
    found = [budget_of(quotas, f"newcomer-{number}", REST_MS).tags.client_id for number in range(11)]
    assert (found.count(OVERFLOW), found[-1]) == (1, OVERFLOW)


def test_totals_do_not_shrink_when_budgets_are_forgotten() -> None:
    quotas = quotas_of((ANY_APP, 1000.0))
    for number in range(3 * MOST):
        now_ms = number * 1000
        budget_of(quotas, f"client-{number}", now_ms).charge(10_500, now_ms)
        sum(quotas.expire(now_ms))
    sum(quotas.expire(now_ms + IDLE_MS_MAX))
    assert len(quotas) == 0
    assert quotas.forgotten.charged == 3 * MOST * 10_500
    assert quotas.forgotten.throttled == 3 * MOST
    assert quotas.forgotten.throttle_ms == 3 * MOST * 500


# Long names


def test_long_client_ids_are_shortened_and_kept_distinct() -> None:
    quotas = quotas_of((ANY_APP, 1000.0))
    names = ["x" * 32_767, "x" * 32_766, "x" * (NAME_CHARS_MAX + 1), "x" * NAME_CHARS_MAX]
    names.append(shortened(names[0]))
    budgets = {budget_of(quotas, name).tags for name in names}
    assert len(budgets) == len(names)
    assert all(len(tags.client_id) <= NAME_CHARS_MAX + 1 for tags in budgets)
    assert budget_of(quotas, names[0]) is budget_of(quotas, "x" * 32_767)


def test_a_user_name_that_utf_8_cannot_encode_is_shortened() -> None:
    quotas = quotas_of((ANY_USER, 3.0))
    assert len(budget_of(quotas, "x", user="\ud800" * 300).tags.user) == NAME_CHARS_MAX + 1
