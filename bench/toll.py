"""Measure the time that request-time quotas and the recording of usage add to a request, in Weir's own code:
`python -m bench.toll`.

One process feeds requests and responses to Weir's connection code, without sockets, under several quota
tables in turn, and reports the fastest round of each. The cost of sockets and the kernel is equal in all
columns, and is not included: at a real broker, its noise of some microseconds would hide the differences.
"""

from __future__ import annotations

import gc
import json
import logging
import time
from collections.abc import Mapping
from typing import Final

import click
import structlog

from bench import render
from bench.canned import TOPICS, Answers
from bench.frames import CLIENT_ID
from bench.report import Table
from bench.rows import ROWS, Row
from tests.proxy.wire import new_connection
from weir.protocol import framing
from weir.protocol.api import ApiKey
from weir.proxy.connection.connection import ANONYMOUS
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from weir.quotas.table.quota_table import Quota

REQUESTS: Final = 1_000
GAP_US: Final = 100
"""Time (µs) between two requests, so short that no request is charged the surcharge of an idle broker."""
ANSWERS: Final = Answers(9092)
BYTES: Final = {
    (Entity(client_id=CLIENT_ID), QuotaKey.PRODUCER_BYTE_RATE): 1e15,
    (Entity(client_id=CLIENT_ID), QuotaKey.CONSUMER_BYTE_RATE): 1e15,
}
REQUEST: Final = (Entity(client_id=CLIENT_ID), QuotaKey.REQUEST_PERCENTAGE)
OTHERS: Final = (Entity(client_id="another"), QuotaKey.REQUEST_PERCENTAGE)
TABLES: Final[Mapping[str, Mapping[Quota, float]]] = {
    "no quotas": {},
    "bytes": BYTES,
    "bytes, another's request time": {**BYTES, OTHERS: 1e9},
    "bytes and request time": {**BYTES, REQUEST: 1e9},
    "beyond half of it": {**BYTES, REQUEST: 100.0},
    "throttled": {**BYTES, REQUEST: 1e-2},
    "bytes, usage recorded": BYTES,
    "bytes, usage traced": BYTES,
}
"""Quota tables by column. Below half of a request-time quota, a charge does not compute the rate; `beyond
half of it` measures charges that do.
"""
USED: Final = {"beyond half of it": 600.0}
"""Usage charged before the measurement, by column: percent of one thread during one second. The rate is
averaged over about ten seconds, so it is a tenth of this.
"""
RECORDED: Final = {"bytes, usage recorded": 0.0, "bytes, usage traced": 1.0}
"""Share of the clients whose requests are traced, by column. Weir records usage in these columns only."""
BASE: Final = "bytes"


def us_per_request(row: Row, table: QuotaTable, used: float = 0.0, traced: float | None = None) -> float:
    """Return the mean CPU time (µs) of a request and its response in one round. `used` is the usage charged
    before the round. If `traced` is given, Weir records usage, and traces this share of the clients; the time
    then includes reading the usage registry once.
    """
    quotas = BrokerQuotas.create(table)
    budget = quotas.ledger(ANONYMOUS, CLIENT_ID, 0).request
    if budget is not None:
        budget.charge_api(ApiKey.METADATA, used, 0)
    connection = new_connection(quotas=quotas)
    books = None if traced is None else UsageRegistries(trace_share=traced)
    connection.client.usage = None if books is None else books.of(None)
    frame = row.request(TOPICS).frame(CLIENT_ID)
    answer = ANSWERS.frame(frame)
    request, response = bytearray(frame), bytearray(answer)
    request_view, response_view = memoryview(request), memoryview(response)
    request_end, response_end = len(request), len(response)
    gc.collect()
    begun_ns = time.process_time_ns()
    for _number in range(REQUESTS):
        connection.clock.now_us += GAP_US
        now_ms = connection.clock.now_us // 1000
        connection.throttled_until_ms = 0  # as if the client had waited for the throttle time
        connection.receive(connection.client_end, request, request_view, request_end, now_ms)
        connection.effects.to_broker.clear()
        response[:] = answer  # restores the response, which Weir has rewritten in place
        connection.receive(connection.broker_end, response, response_view, response_end, now_ms)
        connection.effects.to_client.clear()
    if books is not None:
        list(books.take_traces(0, ""))
        list(books.drain(0, 1000, ""))
    took_ns = time.process_time_ns() - begun_ns
    if connection.effects.close_reason is not None or connection.in_flight:
        raise AssertionError(
            f"{row.name}: {connection.effects.close_reason}, {len(connection.in_flight)} in flight"
        )
    return took_ns / 1000 / REQUESTS


@click.command(help=__doc__)
@click.option("--rounds", default=40, show_default=True, type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True, help="Print all figures (µs) as JSON.")
def main(rounds: int, as_json: bool) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    rows = [row for row in ROWS if "500" not in row.name and not row.reconnects]
    best: dict[str, dict[str, float]] = {row.name: {} for row in rows}
    for row, name in ((row, name) for _round in range(rounds) for row in rows for name in TABLES):
        took_us = us_per_request(row, QuotaTable(TABLES[name]), USED.get(name, 0.0), RECORDED.get(name))
        best[row.name][name] = min(took_us, best[row.name].get(name, took_us))
    if as_json:
        click.echo(json.dumps({"compiled": compiled(), "us": best}))
        return
    lines = [
        [row, *(f"{us:.2f} ({us - figures[BASE]:+.2f})" for us in figures.values())]
        for row, figures in best.items()
    ]
    title = f"µs per request, in process{', compiled' if compiled() else ''}; (added to {BASE})"
    click.echo(render.markdown([Table(title, ["row", *TABLES], lines)], []))


def compiled() -> bool:
    """Return True if Weir's own code is compiled."""
    return not (framing.__file__ or "").endswith(".py")


if __name__ == "__main__":
    main()
