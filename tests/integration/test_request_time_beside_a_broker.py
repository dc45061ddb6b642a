"""The same clients under the same `request_percentage`: held by the broker's own quota, or by Weir."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.clients import create_topic
from tests.integration.calibrated import SETTINGS, WINDOW_NUM, costs_file
from tests.raw import Behaviour, RawClient, drive, leaders, loops, set_quotas
from tests.raw.rates import mean_rate, throttling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.integration.calibrated import Build
    from tests.integration.conftest import StartWeir
    from tests.kafka import Cluster
    from tests.kafka.fixtures import StartCluster
    from tests.raw import Address

pytestmark = [
    pytest.mark.broker,
    pytest.mark.alone,
    pytest.mark.skipif(
        "WEIR_FIGURES" not in os.environ,
        reason="minutes, and figures of a machine that does nothing else: set WEIR_FIGURES=1 to have them",
    ),
]

FACTOR: Final = 1.5
PARTITIONS: Final = 200
ROUNDS: Final = 5
WARM_S: Final = 15.0
"""For a broker that has just started; its requests become ten times cheaper."""


class Trial(NamedTuple):
    """Loops under one quota, at the same time those of all APIs given."""

    percent: int
    apis: Sequence[str]
    size: int
    """Of the requests."""
    connections: int
    from_s: float
    """When what the window allows at first is used up."""
    until_s: float


APIS: Final = ("Metadata", "Produce", "Fetch")
SMALL, MEDIUM, LARGE = 1, 20, 200
TRIALS: Final = (
    Trial(1, APIS, SMALL, 1, 1.0, 3.5),
    Trial(10, APIS, MEDIUM, 1, 1.0, 3.5),
    *(Trial(50, (api,), LARGE, 2, 1.2, 3.7) for api in APIS),
)


def builds(topic: str) -> Mapping[str, Build]:
    """A request of each API, of any size up to PARTITIONS. Metadata is asked for topics that there are not:
    looking for them takes as long.
    """
    return {
        "Metadata": lambda client_id, size: loops.metadata(client_id, [f"no-{n}" for n in range(10 * size)]),
        "Produce": lambda client_id, size: loops.produce(client_id, topic, size),
        "Fetch": lambda client_id, size: loops.fetch(client_id, topic, size),
    }


class Held(NamedTuple):
    per_s: float
    throttled: int
    """Answers that told it to wait."""


def achieved(address: Address, who: str, trial: Trial, requests: Mapping[str, Build]) -> dict[str, Held]:
    clients = {
        api: RawClient(
            api,
            address,
            requests[api](f"{who}-{trial.percent}-{api}", trial.size),
            Behaviour(connections=trial.connections),
        )
        for api in trial.apis
    }
    drive(list(clients.values()), trial.until_s)
    span = trial.from_s, trial.until_s
    return {
        api: Held(mean_rate(client.answers, *span), throttling(client.answers, *span).responses)
        for api, client in clients.items()
    }


def client_ids(who: str) -> dict[str, int]:
    return {f"{who}-{trial.percent}-{api}": trial.percent for trial in TRIALS for api in trial.apis}


QUOTAS: Final = "\n".join(
    f'[[quota]]\nclient_id = "{client_id}"\nrequest_percentage = {percent}\n'
    for client_id, percent in client_ids("weir").items()
)


class Stage:
    """A broker that holds the client-ids of `broker`, and Weirs that hold those of `weir`."""

    def __init__(self, cluster: Cluster, start_weir: StartWeir, topic: str, costs: Path) -> None:
        create_topic(cluster.bootstrap, topic, partitions=PARTITIONS)
        self._bootstrap = cluster.bootstrap
        self._start_weir = start_weir
        self._topic = topic
        self._costs = costs
        self._address = leaders(("127.0.0.1", next(iter(cluster.ports.values()))), topic)[0]
        self._requests = builds(topic)
        set_quotas(
            self._address, {who: {"request_percentage": at} for who, at in client_ids("broker").items()}
        )

    def warm(self) -> None:
        every = [build("warm", size) for build in self._requests.values() for size in (SMALL, LARGE)]
        drive(
            [RawClient("warm", self._address, request, Behaviour(connections=2)) for request in every], WARM_S
        )

    def round(self, trials: Sequence[Trial]) -> dict[tuple[int, str], tuple[Held, Held]]:
        """What the broker and a newly calibrated Weir let through, by percent and API."""
        self._costs.write_text(costs_file(self._address, self._requests, (SMALL, LARGE)), "utf-8")
        options = ("--set", f"request_costs={self._costs}", "--set", f"quota_window_num={WINDOW_NUM}")
        weir = self._start_weir(self._bootstrap, QUOTAS, options=options)
        through = leaders(("127.0.0.1", weir.port), self._topic)[0]
        found: dict[tuple[int, str], tuple[Held, Held]] = {}
        for trial in trials:
            by_broker = achieved(self._address, "broker", trial, self._requests)
            by_weir = achieved(through, "weir", trial, self._requests)
            found |= {(trial.percent, api): (by_broker[api], by_weir[api]) for api in trial.apis}
        weir.stop()
        return found


@pytest.mark.parametrize("percents", [(10, 50), (1,)], ids=["10 and 50 %", "1 %"])
def test_weirs_request_time_quota_admits_as_much_as_a_brokers(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path, percents: Sequence[int]
) -> None:
    cluster = kafka_cluster("3.9.1", settings=SETTINGS, optimized=True)
    stage = Stage(cluster, start_weir, topic, tmp_path / "costs.toml")
    stage.warm()
    trials = [trial for trial in TRIALS if trial.percent in percents]
    ratios = defaultdict[tuple[int, str], list[float]](list)
    outside = {(trial.percent, api) for trial in trials for api in trial.apis}
    for number in range(ROUNDS):
        wanted = [trial for trial in trials if any((trial.percent, api) in outside for api in trial.apis)]
        for which, (by_broker, by_weir) in stage.round(wanted).items():
            binds = by_broker.throttled > 0 and by_weir.throttled > 0
            ratios[which].append(by_weir.per_s / by_broker.per_s if binds else math.inf)
            print(number, which, by_broker, by_weir, f"{ratios[which][-1]:.2f}")
        if number % 2 == 0:  # a median of two would be a mean
            outside = {which for which, seen in ratios.items() if not 1 / FACTOR <= median(seen) <= FACTOR}
        if not outside:
            break
    assert {which: ratios[which] for which in outside} == {}
