"""Write docs/reference/datasheet.md: `python -m bench.datasheet [--targets NAME;...] [--runs N]`.

Each run measures each target by `weir probe --profile quotas --measure`, at a fresh broker. The page has the
median of the runs. All runs are in bench/results/datasheet/, from which --only-write writes the page again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import click
import msgspec

from bench import command, document, render
from bench.record import machine
from bench.report import Table
from tests.clients.model import ClientError
from tests.integration.weir import Weir, WeirError
from tests.java.kafka_tools import KafkaTools
from tests.kafka import Cluster, ClusterError, JarError, JavaMissingError
from weir.conformance.probe.link import ConversationError, ProbeTarget
from weir.conformance.probe.measure.measurement import Measurement, measure
from weir.conformance.probe.measure.sheet import Datasheet, parse_sheet
from weir.conformance.probe.quotas.jobs import ClientQuota
from weir.conformance.probe.quotas.profile import bare_stage, new_run
from weir.conformance.probe.scratch import UnusableError
from weir.conformance.report import rows

PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "datasheet.md"
RESULTS: Final = Path(__file__).parent / "results" / "datasheet"
BEHIND: Final = "3.9.1"
"""Release of the broker behind Weir."""
BYTE_RATES: Final = ("producer_byte_rate", "consumer_byte_rate")
IN_FORCE_S: Final = 2.0
"""Time (s) after which a broker has quotas that were written to ZooKeeper."""
TIMEOUT_S: Final = 30.0
"""Time (s) in which a new broker on a busy machine answers."""
FAILURES: Final = (
    ClientError,
    ClusterError,
    ConversationError,
    JarError,
    JavaMissingError,
    OSError,
    UnusableError,
    WeirError,
    document.DocumentError,
)

Place = tuple[ProbeTarget, str | None]
"""A target, and the name of the run for which its quotas are set; None if the measurement sets them."""


class SheetTarget(NamedTuple):
    """A target of the page."""

    name: str
    start: Callable[[], AbstractContextManager[Place]]


@contextmanager
def broker(release: str) -> Iterator[Place]:
    """Run a broker that can set quotas by itself."""
    with _cluster(release) as cluster:
        yield _target(cluster.bootstrap), None


@contextmanager
def broker_with_zookeeper(release: str) -> Iterator[Place]:
    """Run a broker without AlterClientQuotas, whose tool sets the quotas."""
    with _cluster(release) as cluster:
        target, run = _target(cluster.bootstrap), new_run()
        tools = KafkaTools(cluster, cluster.bootstrap)
        for quota in _quotas(target, run):
            tools.run("kafka.admin.ConfigCommand", "--zookeeper", cluster.zookeeper, *_alter(quota))
        time.sleep(IN_FORCE_S)
        yield target, run


@contextmanager
def weir(*options: str, pacing: str = "kafka") -> Iterator[Place]:
    """Run Weir, with the quotas in its file, in front of a broker."""
    with _cluster(BEHIND) as cluster:
        run = new_run()
        with Weir(cluster.bootstrap, options=options) as empty:  # offers the versions that Weir offers
            quotas = _quotas(_target(empty.bootstrap), run)
        with Weir(
            cluster.bootstrap, "".join(_entry(quota, pacing) for quota in quotas), options=options
        ) as front:
            yield _target(front.bootstrap), run


TARGETS: Final = (
    SheetTarget("Kafka 1.1.1", partial(broker_with_zookeeper, "1.1.1")),
    *(SheetTarget(f"Kafka {release}", partial(broker, release)) for release in ("2.8.2", "3.9.1", "4.4.0")),
    SheetTarget("Weir", weir),
    SheetTarget("Weir, smooth", partial(weir, pacing="smooth")),
    SheetTarget("Weir, two workers", partial(weir, "--set", "workers=2")),
)


def _cluster(release: str) -> Cluster:
    return Cluster(release, optimized=True, say=lambda _text: None)


def _target(bootstrap: str) -> ProbeTarget:
    host, _, port = bootstrap.rpartition(":")
    return ProbeTarget(host, int(port), TIMEOUT_S)


def _quotas(target: ProbeTarget, run: str) -> list[ClientQuota]:
    return Measurement(bare_stage(target, None, run), alters=False).quotas


def _alter(quota: ClientQuota) -> tuple[str, ...]:
    entity = ("--entity-type", "clients", "--entity-name", quota.client_id)
    return ("--alter", *entity, "--add-config", f"{quota.key}={quota.value:g}")


def _entry(quota: ClientQuota, pacing: str) -> str:
    paced = f'pacing = "{pacing}"\n' if quota.key in BYTE_RATES else ""
    return f'[[quota]]\nclient_id = "{quota.client_id}"\n{paced}{quota.key} = {quota.value:g}\n'


def median_sheet(sheets: Sequence[Datasheet]) -> Datasheet:
    """Return a datasheet with the median of each figure."""
    return msgspec.convert(_median([msgspec.to_builtins(sheet) for sheet in sheets]), Datasheet)


def _median(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return {key: _median([value[key] for value in values]) for key in first}
    if isinstance(first, float | int) and not isinstance(first, bool) and None not in values:
        found = median(values)
        return round(found) if isinstance(first, int) else found
    return first


def spread(sheets: Sequence[Datasheet]) -> float:
    """Return the greatest difference of two runs in a rate over 60 s, as a share of their median."""
    rates: dict[str, list[float]] = {}
    for sheet in sheets:
        bytes_ = {
            name: one.steady for name, one in (("produce", sheet.produce), ("fetch", sheet.fetch)) if one
        }
        mutated = {name: one.steady for name, one in (("strict", sheet.strict), ("lax", sheet.lax)) if one}
        for name, found in (bytes_ | mutated).items():
            rates.setdefault(name, []).append(found.rates["60"].mean)
    return max((max(found) - min(found)) / median(found) for found in rates.values())


def _runs(target: SheetTarget) -> list[Datasheet]:
    """Return the runs of a target that were kept."""
    files = sorted(RESULTS.glob(f"{target.name}-*.json"))
    return [msgspec.structs.replace(parse_sheet(file.read_bytes()), target=target.name) for file in files]


def write() -> None:
    """Write the page from the kept runs. Raises DocumentError."""
    found = {target.name: sheets for target in TARGETS if (sheets := _runs(target))}
    sheets = [median_sheet(one) for one in found.values()]
    numbers = ["number of runs (the figures are medians)", *(str(len(one)) for one in found.values())]
    differ = [f"{100 * spread(one):.1f} %" if len(one) > 1 else "-" for one in found.values()]
    further = [numbers, ["rate over 60 s: greatest difference between runs", *differ]]
    date, late = max(sheet.date for sheet in sheets), max(sheet.late_ms for sheet in sheets)
    notes = [
        f"- The last run was on {date}, on a machine with {machine()['cores']} cores.",
        f"- On the measuring machine, timers were up to {late:.0f} ms late.",
    ]
    document.put(PAGE, render.markdown_table(_table(sheets, further)) + "\n\n" + "\n".join(notes))


def _table(sheets: Sequence[Datasheet], further: Sequence[Sequence[str]]) -> Table:
    empty = [""] * len(sheets)
    lines = [
        [row.name, *(cell.replace(" to ", "-") for cell in row.cells)]
        if row.cells
        else [f"**{row.name}**", *empty]
        for row in rows(sheets)
    ]
    return Table("", ["", *(sheet.target for sheet in sheets)], [*lines, *further])


@click.command(help=__doc__, context_settings={"max_content_width": 110})
@click.option("--targets", default="", help=f"Separated by semicolons: {'; '.join(t.name for t in TARGETS)}.")
@click.option("--runs", default=5, show_default=True, type=click.IntRange(1))
@click.option("--only-write", is_flag=True, help="Measure nothing; write the page from the kept runs.")
def main(targets: str, runs: int, only_write: bool) -> None:
    document.check(PAGE)
    RESULTS.mkdir(parents=True, exist_ok=True)
    chosen = [target for target in TARGETS if not targets or target.name in targets.split(";")]
    for number in range(0 if only_write else runs):
        for target in chosen:
            click.echo(f"run {number + 1} of {runs}: {target.name}", err=True)
            with target.start() as (place, run):
                sheet = measure(place, None, run, lambda _share: None)
            file = RESULTS / f"{target.name}-{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}.json"
            file.write_bytes(msgspec.json.format(msgspec.json.encode(sheet), indent=1))
    write()


if __name__ == "__main__":
    command.run(main, "python -m bench.datasheet", FAILURES)
