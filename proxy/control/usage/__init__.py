"""Usage records: read from the registries once per interval, and written to files or a topic on a thread.

    request -> UsageCounters -> RequestInFlight -> response     counted in `proxy.connection.usage_counters`
                  |
    PendingCounters -> UsageRegistries.drain, once per interval `recorder`, a Trio task
                  |
    queue -> thread -> files | topic                            `writer`, `files`, `compression`, `topic`

Usage is counted only if it is recorded (`usage`); `start` builds all parts. A new figure
is a field with a default in `usage.records`, counted by `UsageCounters` and set in its record.

- While usage is recorded, the cost of every request is estimated; otherwise only of requests that are
  charged.
- A request keeps a reference to its client's counters until its response. If the counters were read
  meanwhile, the next count puts them back into the set to be read. So no count is lost or counted twice, and
  reading may pause between records to let sockets be served. If the client's counters were removed meanwhile,
  its present counters take the count, so that two records never have the same key.
- A hash of its names decides whether a client is sampled (`usage_trace_share`): every broker samples the
  same clients.
- A throttle is counted where its throttle time is computed. Mutations of clients without a mutation
  quota are counted, too.
- Records beyond 100,000 that wait, and traced requests beyond 100,000 per broker, are counted as
  dropped; clients beyond 10,000 of a broker are counted together, as the overflow entity.
"""
