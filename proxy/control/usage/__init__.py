"""Usage records: read from the registries once an interval, written to files or a topic on a thread.

    request -> UsageCounters -> RequestInFlight -> response     counted in `proxy.connection.usage_counters`
                  |
    PendingCounters -> UsageRegistries.drain, once a second     `recorder`, a Trio task
                  |
    queue -> thread -> files | topic                            `writer`, `files`, `topic`

Nothing is counted unless it is recorded (`usage_dir`, `usage_topic`); `start` builds all of it. A new figure:
a field with a default in `usage.records`, counted by `UsageCounters` and set in its record.

- Counters travel with the request cost: with recording every request is timed, without it nothing is.
- A request keeps its counters until its response, and what is counted on drained counters makes them active
  again. So nothing is lost or counted twice, and a drain may be cut in slices that leave the loop free.
- A sampled client (`usage_trace_share`) is chosen by a hash of its names: the same at every broker.
- Throttles are counted where they are computed. A mutation quota in shadow counts without a ledger.
- Records beyond `usage_queue_records`, and traced requests beyond 100,000 per broker, are counted as
  dropped; clients beyond `usage_entities_max` share the overflow entity.
"""
