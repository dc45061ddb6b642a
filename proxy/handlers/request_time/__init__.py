"""Request time: the time of a broker's threads that each request costs (KIP-124).

    quotas/costs/3.9.toml -> CostTable (+ Overrides, the operator's file)
        -> Cost of one (API, version, broker versions), in its Plan; extra_us, from the request's body
    request forwarded:  us + us_per_byte * length + cold(gap)   -> RequestInFlight
    response begins:    + us_per_response_byte * length         -> BrokerQuotas, RequestBudget, throttle

`request_time` classifies every API (`CLASSES`: a new API needs a line, or a test fails) and gives plans their
costs; `request_features` reads produce and fetch requests. `proxy.connection.charges` makes the charges, also
for requests that Weir answers itself and for the questions of queries. The charges are made by the
connection's loops and not by a slot of plans, because every API is charged.

- A request is charged once, when its response begins, as at a broker: the response's length decides about
  half of the cost of a Metadata or Fetch request.
- The requests of a client near its quota are taken one at a time. Otherwise a client could send a thousand
  requests at once, and be throttled once for all of them, for one window at most. Below half of its quota, a
  client may pipeline requests.
- The first request of a connection is held until its entity's throttle is over, but only once: other
  connections may cause throttles without end. Without this hold, a client could avoid its quota by a
  connection per request.
- The unpacked sizes of compressed batches are derived from their framing, within a few percent. Brokers
  unpack batches to check them, which is most of such a batch's cost. A client can forge this framing, so Weir
  also computes an upper bound of each size. If the bound is far above the estimate, Weir unpacks one in 16 of
  the gzip streams of up to 1 MB to confirm their sizes. All other doubtful sizes are corrected by the
  broker's response time (`confirmed_us`).
- Response times are used for nothing else: they contain waiting, and were 2 to 37 times the true cost for
  honest clients.
- If a request is too long to be read whole, the parts that are read or confirmed are chosen at random. If a
  size is false, its batch is charged like 16 or more batches with gzip's maximum ratio. That also pays for
  sizes that were not confirmed, so false sizes gain nothing on average.
- Clients that never send ApiVersions are charged the costs of the broker that Weir has last connected to,
  because all brokers of a cluster have similar versions.
- Bounds of reading one request: 64 partitions, 16 compressed ones, 64 blocks and 4 gzip members each, and one
  stream unpacked to 1 MB (2 ms, for one request in 16). At most 1 KB of a request's beginning is kept per
  connection.
"""
