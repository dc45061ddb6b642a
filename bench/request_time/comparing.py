"""Run workloads directly at a broker and through Weir, and pair the estimated request times with the measured
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bench.request_time import scripts
from bench.request_time.book import Book
from bench.request_time.calls import Call, Script, again
from bench.request_time.features import estimate_us
from bench.request_time.judge import Kind
from bench.request_time.loop import LoopError
from bench.request_time.runner import Case, Observation, observe
from bench.request_time.stand import Stand
from bench.request_time.topics import EMPTY, PARTITIONS, Data
from bench.request_time.weir import Weir
from bench.request_time.workloads import Workload
from tests.kafka.processes import Processes
from weir.quotas.costs.request_costs import ColdCost, CostTable

WAYS: Final = ("direct", "weir")
"""The two ways to run a workload: directly at the broker, compared with the cost model's estimate, or through
Weir, compared with Weir's charges.
"""

JAVA_S: Final = 12.0
"""Time (s) for which all frequent requests are sent first, so that Java compiles their code: until then they
cost many times more.
"""
WARM_UP_S: Final = 1.0
"""Time (s) for which each workload runs once before the measurements, so that Java compiles the code that it
needs.
"""

Say = Callable[[str], None]
Pair = tuple[Observation, float]
"""Observation of one API of one client, and the request time (µs) that was estimated or charged for it."""


@dataclass(slots=True)
class Compared:
    """Results of the workloads at one broker: observations with estimates, by way (directly, or through Weir)
    and workload, and descriptions of failures.
    """

    version: str
    pairs: dict[str, dict[str, list[Pair]]] = field(default_factory=lambda: {way: {} for way in WAYS})
    problems: list[str] = field(default_factory=list)


def kind_of(workload: Workload) -> Kind:
    """Return the properties of the workload that decide which targets apply to it."""
    return Kind(workload.overloaded, workload.idle, workload.compressed)


def possible(workloads: Sequence[Workload], stand: Stand) -> list[Workload]:
    """Return the workloads that the broker's versions support."""
    book = Book(stand.broker_versions)
    return [workload for workload in workloads if workload.needs(book, stand.data)]


def compare(
    stand: Stand, workloads: Sequence[Workload], table: CostTable, seconds: float, say: Say
) -> Compared:
    """Run the workloads that the broker supports. A workload that fails is added to the problems of the
    result. Raises TruthError, TargetError, OSError.
    """
    compared, runnable = Compared(stand.version), possible(workloads, stand)
    say(f"{stand.version}: warming up")
    observe(_frequent(stand), stand.address, stand.truth, table.cold, warm_up_s=JAVA_S, seconds=0.1)
    for workload in runnable:
        say(f"{stand.version}: {workload.name}, for Java to compile what it needs")
        with suppress(LoopError):
            _run(stand, workload, table.cold, WARM_UP_S, None, "warm")
    with closing(Processes("weir-request-time-")) as processes:
        weir = Weir(processes, stand.address[1])
        for workload in runnable:
            for way in WAYS:
                say(f"{stand.version}: {workload.name}, {way}")
                through = weir if way == "weir" else None
                try:
                    seen = _run(stand, workload, table.cold, seconds, through, way)
                except LoopError as error:
                    compared.problems.append(f"{stand.version}, {workload.name}, {way}: {error}")
                    continue
                compared.pairs[way][workload.name] = [_pair(found, table, way) for found in seen]
                compared.problems += _errors(stand.version, workload.name, way, seen)
    return compared


def _frequent(stand: Stand) -> Case:
    """Return a case with all frequent requests."""
    book, data, client = Book(stand.broker_versions), stand.data, "warm-up"
    calls = [
        book.produce(client, data.small),
        book.produce(client, data.medium, acks=-1, indexes=range(8)),
        book.produce(client, data.large),
        *(book.produce(client, batch) for batch in data.compressed.values()),
        book.hot(client, big=False),
        book.hot(client, big=True),
        book.fetch(client, EMPTY, range(100)),
        book.metadata(client),
        book.metadata(client, tuple(PARTITIONS)),
        book.api_versions(client),
        book.commit(client, "warm-up"),
        book.committed(client, "warm-up"),
        book.list_offsets(client),
    ]
    return Case(
        client,
        lambda: [again(*calls), again(*calls), scripts.membership(book, client, "warm-up-group")],
    )


def _errors(version: str, workload: str, way: str, seen: Sequence[Observation]) -> list[str]:
    return [
        f"{version}, {workload}, {way}: {found.api} answered {', '.join(found.errors)}"
        for found in seen
        if found.errors
    ]


def _run(
    stand: Stand, workload: Workload, cold: ColdCost, seconds: float, weir: Weir | None, way: str
) -> list[Observation]:
    book, client = Book(stand.broker_versions), f"{way}-{workload.name}"
    case = Case(workload.name, partial(greeted, workload, book, stand.data, client))
    run = partial(observe, case, truth=stand.truth, cold=cold, warm_up_s=seconds / 2, seconds=seconds)
    if weir is None:
        return run(address=stand.address)
    return run(address=weir.address, charged_us=weir.charged_us)


def greeted(workload: Workload, book: Book, data: Data, client: str) -> list[Script]:
    """Return the workload's scripts, each preceded by an ApiVersions request: real clients send it first, and
    Weir learns the broker's versions from the response.
    """
    hello = book.api_versions(f"{client}-hello")
    return [_after(hello, script) for script in workload.make(book, data, client)]


def _after(hello: Call, script: Script) -> Script:
    yield hello
    yield from script


def _pair(seen: Observation, table: CostTable, way: str) -> Pair:
    if way == "weir":
        return seen, seen.charged_us
    return seen, estimate_us(seen.done, table.of(seen.api), table)
