"""Request time: what each request costs a broker (KIP-124).

    quotas/costs/3.9.toml -> CostTable (+ Overrides, the operator's file)
        -> Cost of one (API, version, broker versions), in its Plan; extra_us, from the request's body
    request forwarded:  us + us_per_byte * length + cold(gap)   -> RequestInFlight
    response begins:    + us_per_response_byte * length         -> BrokerQuotas, RequestBudget, throttle

`request_time` classifies every API (`CLASSES`: a new one needs a line, or a test fails) and gives plans their
costs, `request_features` reads produce and fetch requests. `proxy.connection.charges` charges, also requests
that Weir answers itself, and the questions of queries; it is in the loops, because every API is charged.

- Charged in one charge, when the response begins: its size is half of the cost of a Metadata or a Fetch,
  and a broker charges then.
- Near the limit requests of a connection are taken one at a time: a throttle is one window at most, so a
  thousand requests in flight would be had for one wait. Below half of it, pipelining stays.
- A first request is held for its entity's throttle, once and for a second at most (a throttle is one
  window), or a connection per request would be an escape; once, because others may be throttled again and
  again.
- Unpacked sizes are read off the framing, which tells them within a few percent: brokers unpack to check,
  and that is most of a packed batch's cost. The client writes the framing, so each size has a bound that it
  cannot exceed. Where the bound is far from the estimate, gzip sizes up to 1 MB are confirmed by unpacking
  one in 16; whatever else is in doubt is settled by the latency of the request, in `confirmed_us`.
- Latencies settle nothing else: they contain waiting, and were 2 to 37 times the truth for honest clients.
- What is read or confirmed of a request that is too long to be read whole is chosen at random. A false size
  counts for the 15 that were not confirmed, so that lies gain nothing on average.
- Clients that never ask for versions are charged by the costs of the broker met last: they use the same
  brokers.
- Bounds of reading one request: 64 partitions, 16 compressed ones, 64 blocks and 4 gzip members each, one
  stream unpacked to 1 MB (2 ms, for one request in 16), and 1 KB of beginning remembered per connection.
"""
