"""Which requests cost tokens, which are refused, and which are throttled: brokers, and Weir."""

from __future__ import annotations

import pytest

from tests.integration.conftest import StartWeir
from tests.kafka.fixtures import StartCluster
from tests.mutations.cases import CASES, DEFAULT_PARTITIONS, RATE, SAMPLES, SETUP, Stage
from tests.mutations.client import await_mutation_quota, set_mutation_quota

pytestmark = [pytest.mark.broker]

SETTINGS = {"controller.quota.window.num": str(SAMPLES), "num.partitions": str(DEFAULT_PARTITIONS)}
QUOTAS = f'[[quota]]\nclient_id = "<default>"\ncontroller_mutation_rate = {RATE}\n'
PLENTY = 1e6


@pytest.mark.parametrize("version", ["3.9.1", "4.2.0"])
def test_brokers_charge_mutations_as_the_table_of_cases_says(
    fresh_cluster: StartCluster, version: str
) -> None:
    cluster = fresh_cluster(version, settings=SETTINGS)
    broker = ("127.0.0.1", cluster.ports[0])
    set_mutation_quota(broker, SETUP, PLENTY)
    set_mutation_quota(broker, None, RATE)
    await_mutation_quota(broker)
    check(Stage(broker, broker))


def test_weir_charges_mutations_as_the_table_of_cases_says(
    fresh_cluster: StartCluster, start_weir: StartWeir
) -> None:
    cluster = fresh_cluster("3.9.1", settings=SETTINGS)
    weir = start_weir(cluster.bootstrap, QUOTAS, options=("--set", f"quota_window_num={SAMPLES}"))
    stage = Stage(("127.0.0.1", weir.port), ("127.0.0.1", cluster.ports[0]))
    check(stage, weir=True)


def check(stage: Stage, *, weir: bool = False) -> None:
    """Play every case, with a full bucket and with an overdrawn one; tell all that differs."""
    wrong = []
    for case in CASES:
        overdrawn = (case.overdrawn_at_weir if weir else None) or case.overdrawn
        for state, wanted in (("full", case.full), ("overdrawn", overdrawn)):
            seen = stage.play(case, overdrawn=state == "overdrawn")
            if seen != wanted:
                wrong.append(f"{case.name}, {state}: {seen} instead of {wanted}")
    assert not wrong, "\n".join(wrong)
