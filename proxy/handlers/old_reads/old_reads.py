"""Charges of fetch responses to rates of old reads; the package has the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from weir.protocol.messages import FetchResponse
from weir.protocol.scanning.least_fetch import ask_least
from weir.protocol.scanning.old_batches import OldBatches
from weir.protocol.values import schema_of
from weir.proxy.handlers.bandwidth.bandwidth import asked_least
from weir.proxy.handlers.decisions import Decision, Wait
from weir.proxy.handlers.plan import RESPONSE_QUOTA, ByteCounter, Context, Plan, Removal
from weir.quotas import ClientLedger, QuotaKey


@dataclass(frozen=True, slots=True)
class OldReadAge:
    """The age of old reads."""

    age_ms: int = 900_000
    unix_ms: Callable[[], int] = int
    """Function that returns the present Unix time (ms); by default nothing is old."""


class OldReadState:
    """State of a connection: the time until which it waits because of its latest answer."""

    __slots__ = ("until_ms",)

    def __init__(self) -> None:
        self.until_ms = 0
        """Time (ms); 0 after an answer without old bytes."""


class OldReadCounter:
    """A `ByteCounter` that charges the old bytes of a fetch response."""

    __slots__ = ("_context", "_ledger", "_plan", "_scan")
    quota: Final = QuotaKey.OLD_READ_BYTE_RATE

    def __init__(self, context: Context, ledger: ClientLedger, plan: Plan) -> None:
        age = context.cluster.old_read_age
        self._context = context
        self._ledger = ledger
        self._plan = plan
        self._scan = OldBatches(plan.version, age.unix_ms() - age.age_ms)

    def feed(self, data: bytearray, start: int, stop: int) -> int:
        """Scan the body's next bytes, `data[start:stop]`, as many elements as the turn allows. Return the
        position behind the scanned bytes. Raises ProtocolError if the body is malformed.
        """
        return self._context.clock.feed(self._scan, data, start, stop)

    def charge(self, now_ms: int, *, told: bool = True) -> int:
        """Charge the old bytes, and note how long this connection waits; return the throttle time (ms) that
        the response tells.
        """
        state = self._context.state_of(OldReadState)
        state.until_ms = 0
        old_bytes, ledger = self._scan.old_bytes, self._ledger
        if not old_bytes:
            return 0
        self._context.note_old_read(old_bytes)
        wait_ms = ledger.charge_old_read(old_bytes, now_ms, told=told)
        until_ms = now_ms + wait_ms
        if not told and ledger.old_reads is not None:
            until_ms = ledger.old_reads.throttled_until_ms
        if until_ms > now_ms:
            state.until_ms = until_ms
            self._context.client.forget_parse(self._plan)
        return wait_ms

    def cut(self, now_ms: int) -> None:
        """Charge the old batches that were forwarded of a response that is cut off."""
        self.charge(now_ms, told=False)


class BothCounters:
    """A `ByteCounter` of two: one may scan fewer bytes in a turn than the other."""

    __slots__ = ("_ahead", "_counters", "quota")

    def __init__(self, *counters: ByteCounter) -> None:
        self._counters = counters
        self.quota = RESPONSE_QUOTA
        self._ahead = [0] * len(counters)
        """Number of bytes by which each counter is ahead of the slowest."""

    def feed(self, data: bytearray, start: int, stop: int) -> int:
        """Pass the body's next bytes, `data[start:stop]`, to each counter. Return the position behind the
        bytes that all have counted.
        """
        reached = [
            counter.feed(data, start + ahead, stop) if start + ahead < stop else start + ahead
            for counter, ahead in zip(self._counters, self._ahead, strict=True)
        ]
        slowest = min(reached)
        self._ahead = [position - slowest for position in reached]
        return slowest

    def charge(self, now_ms: int, *, told: bool = True) -> int:
        """Charge the bytes that each has counted; return the longest throttle time (ms)."""
        longest_ms = 0
        for counter in self._counters:
            wait_ms = counter.charge(now_ms, told=told)
            if wait_ms > longest_ms:
                longest_ms, self.quota = wait_ms, counter.quota
        return longest_ms

    def cut(self, now_ms: int) -> None:
        """Charge what was forwarded of a response that is cut off."""
        for counter in self._counters:
            counter.cut(now_ms)


def plan_fetch(plan: Plan) -> None:
    """Charge the old bytes of fetch responses. While a connection waits because of its latest answer, its
    fetches get no records.
    """
    inner, others_removal, inner_counter = plan.admit, plan.counted_removal, plan.byte_counter
    least = ask_least(plan.version)
    if inner is None or others_removal is None or inner_counter is None:
        raise AssertionError("topic rates come before old reads")
    removal = others_removal

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        decision = inner(context, data, frame, end, complete)
        if isinstance(decision, Wait) or context.client.ledger.old_reads is None:
            return decision
        if context.state_of(OldReadState).until_ms > context.now_ms:
            context.client.forget_parse(plan)
            return asked_least(plan, least, data, frame, end, complete)
        return decision

    def over(context: Context, ledger: ClientLedger) -> int:
        until_ms = removal.over(context, ledger)
        if ledger.old_reads is None:
            return until_ms
        return max(until_ms, context.state_of(OldReadState).until_ms)

    def tell(context: Context, ledger: ClientLedger) -> tuple[int, int, int]:
        client_ms, topic_ms, old_ms = removal.tell(context, ledger)
        if ledger.old_reads is not None and context.state_of(OldReadState).until_ms > context.now_ms:
            old_ms = ledger.old_reads.tell_rest(context.now_ms)
        return client_ms, topic_ms, old_ms

    def byte_counter(context: Context, ledger: ClientLedger) -> ByteCounter | None:
        others = inner_counter(context, ledger)
        if not ledger.counts_old_reads:
            return others
        old = OldReadCounter(context, ledger, plan)
        return old if others is None else BothCounters(others, old)

    plan.admit, plan.byte_counter = admit, byte_counter
    plan.counted_removal = Removal(over, tell, removal.on_emptied)


def prepare() -> None:
    """Compile the scanners of all versions."""
    for version in schema_of(FetchResponse).versions:
        OldBatches(version, 0)
