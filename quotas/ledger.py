"""ClientLedger: the limiters of one client at one broker, and the only place where they are charged.

A connection looks its client's ledger up once per principal and client-id, and again when quotas have changed
(`BrokerQuotas.generation`). All connections of the client share its limiters; other clients share them too if
the quota is for several clients. A charge goes to the enforced limiter, and to the limiter of a shadow entry,
which only counts (`limiters.shadow`). Where the client's groups have quotas, each of the two is a chain of
limiters (`limiters.chain`); a client without groups has no chains, so it pays nothing for them.

A ledger does not count usage for usage records, because it belongs to a client, and usage counters to a
request. The request may be answered in a later interval, or have a trace of its own.
`proxy.connection.charges` counts usage with each charge.
"""

from __future__ import annotations

from weir.quotas.limiters.chain import AnyBudget, Chain  # fields' types: mypyc wants them at run time
from weir.quotas.limiters.request_time import US_PER_PERCENT, RequestBudget
from weir.quotas.limiters.shadow import shadowed
from weir.quotas.topics import TopicQuotas


class ClientLedger:
    """Limiters of bytes and request time of one client, and the topic rates at its broker."""

    __slots__ = (
        "_fetch",
        "_old_reads",
        "_percent_per_us",
        "_produce",
        "_request",
        "charges_fetch",
        "charges_produce",
        "charges_request",
        "counts_old_reads",
        "counts_records",
        "fetch",
        "old_reads",
        "produce",
        "request",
        "shadow",
        "topics",
    )

    def __init__(
        self,
        produce: AnyBudget | None = None,
        fetch: AnyBudget | None = None,
        request: RequestBudget | Chain | None = None,
        *,
        shadow: ClientLedger | None = None,
        topics: TopicQuotas | None = None,
        old_reads: AnyBudget | None = None,
        percent_per_us: float = 1 / US_PER_PERCENT,
    ) -> None:
        """Bundle the limiters of a client: None where no quota applies. `shadow`: ledger of the limiters of
        shadow entries, which only count. `percent_per_us`: percent-seconds charged per microsecond of the
        cost model.
        """
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.shadow = shadow
        """Ledger of the limiters of shadow entries, which count usage and throttle no client; None if the
        quotas have no shadow entries.
        """
        self.topics = topics
        """Rates of topics at the client's broker; None while no topic has a rate."""
        self.old_reads = old_reads
        self._old_reads = shadowed(old_reads, None if shadow is None else shadow.old_reads)
        self.counts_old_reads = self._old_reads is not None
        """True if a quota, enforced or shadow, counts the old record batches that this client fetches."""
        self.counts_records = topics is not None or self.counts_old_reads
        """True if responses may have to be scanned for records."""
        self._produce = shadowed(produce, None if shadow is None else shadow.produce)
        self._fetch = shadowed(fetch, None if shadow is None else shadow.fetch)
        self._request = shadowed(request, None if shadow is None else shadow.request)
        self._percent_per_us = percent_per_us
        # Looked at for each request, so computed once per client
        self.charges_produce = self._produce is not None
        """True if a quota, enforced or shadow, counts this client's produced bytes."""
        self.charges_fetch = self._fetch is not None or self.counts_old_reads
        """True if a quota, enforced or shadow, counts fetched bytes of this client, or the old ones."""
        self.charges_request = self._request is not None
        """True if a quota, enforced or shadow, counts this client's request time."""

    @property
    def limiters(self) -> tuple[AnyBudget | None, ...]:
        """The limiters, each None where no quota applies, without those of shadow entries."""
        return self.produce, self.fetch, self.request, self.old_reads

    def charge_produce(self, length: int, now_ms: int) -> int:
        """Charge a produce request of this frame length; return the time (ms) that its client must wait."""
        limiter = self._produce
        return 0 if limiter is None else limiter.charge(length, now_ms)

    def charge_fetch(self, length: int, now_ms: int) -> int:
        """Charge a fetch response of this frame length; return the time (ms) that its client must wait.

        A broker charges the body plus 4, which is the frame length where the header is not flexible.
        """
        limiter = self._fetch
        return 0 if limiter is None else limiter.charge_in_turn(length, now_ms)

    def charge_share_fetch(self, length: int, now_ms: int) -> None:
        """Charge a share fetch response of this frame length. `Budget.owe` says how long its client waits."""
        if self._fetch is not None:
            self._fetch.charge(length, now_ms)

    def charge_old_read(self, size: int, now_ms: int, *, told: bool) -> int:
        """Charge the bytes of old record batches in a fetch response; return the time (ms) that its client
        must wait, 0 if the response cannot tell it (`told` is False).
        """
        limiter = self._old_reads
        if limiter is None:
            return 0
        if told:
            return limiter.charge(size, now_ms)
        limiter.charge_untold(size, now_ms)
        return 0

    def charge_request(self, api_key: int, us: float, now_ms: int) -> int:
        """Charge the request time (µs of one thread) that a request is estimated to have cost; return the
        time (ms) that its client must wait (KIP-124).
        """
        limiter = self._request
        return 0 if limiter is None else limiter.charge_api(api_key, us * self._percent_per_us, now_ms)
