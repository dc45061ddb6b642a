"""A client connection and the broker connection behind it, as a machine without I/O: it takes bytes, events
and a time, and returns effects.

The transport uses nothing but the door (`Connection.start`, `receive`, `passable_bytes`, `passed`, `wake`,
`settle`, `leave`, `drain`, `end`) and the effects; to measure latency it also reads `idle` and
`asked_api_key`, which change nothing. A capability keeps its state for a connection in an object of its own
class (`Connection.state_of`), which nobody else reads.

`state` has the states and their transitions, `waits` the reasons why a side waits (`SideWait`). `connection`
is the machine; `inbound`, `arriving` and `outbound` process the bytes of the client and of the broker.
`effects` is the interface to the transport, `in_flight` has the records of requests, `client` the
principal, its ledger and the parse cache. `replies` sends Weir's own responses and queries, `refusals`
closes connections because of malformed requests, `ending` ends connections. `in_parts` forwards responses in
parts, `emptied` removes the records from fetch responses, `reporting` writes throttle times into responses.
`tokens` processes bare SASL tokens, `charges` charges request time, `usage*` counts usage.

- Parsed fields of a request may be cached, a decision never. Deadlines are compared for each request.
- A response tells the throttle time that is left when the response is sent, so a client waits no longer than
  Weir does. A fetch response whose records Weir has removed counts as one throttle in usage records, as in a
  broker's throttle-time metric. One charge can make a hundred connections wait, and each of these waits
  counts.
- Once a fetch response has told a throttle time, the client's entity gets fetch responses without records, on
  all its connections, until that throttle time is over. Weir keeps this deadline instead of computing the
  rate again: after a burst the computed rate is too high, and clients that wait as told would wait up to 11
  s.
- The fetch response that exceeds the quota is delivered with its records: the broker has read them from
  disk already, and would have to read them again.
- A client that has closed its half while requests are unanswered is kept for 30 s, because it may still read
  responses; the bound frees its descriptors if the broker hangs. Its held requests are forwarded when their
  hold ends, because a request with acks=0 has no acknowledgement but TCP's. Requests without a response are
  charged their known cost, and up to 200 ms of an unconfirmed cost, because the broker processes them
  nevertheless.
- A produce or fetch request whose time is charged or whose usage is recorded waits until 64 KB of it, or all
  of it, have arrived; only then is its cost estimated. So small packets do not make a request cheaper. A
  broker cannot begin with less either.
- A client with a request quota may have 32 requests in flight on a connection, and one when it is near its
  quota. All requests in flight are forwarded before the first of them is charged. Without this bound, 1,010
  requests passed in 11 s against a quota for which a broker lets 40 pass.
- A gap is the time (µs) between two requests forwarded to one broker (`effects.Clock`). A broker that was
  idle for 0.3 to 1.5 ms has cold caches and parked threads, so its next request costs more. The reactor sets
  the clock once per turn. Requests of all clients end a gap, because the gap is the broker's.
- The bytes that a connection keeps are bounded per direction: one buffer, one response that must be whole to
  be rewritten, or one request that must be whole. At most one batch of bytes waits to be sent.
"""
