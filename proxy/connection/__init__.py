"""A client connection and the broker connection behind it, as a machine without I/O: bytes, events and a time
in, effects out.

`state` has the states, their transitions, and the reasons why each takes no request (`WHY`). `connection` is
the machine, `inbound` and `outbound` are the halves that process the bytes of each side, `effects` is the
interface to the transport, `in_flight` has the records of requests, `client` the principal, its ledger and
the parse cache, `replies` Weir's own responses and queries, `ending` the ends of connections, `emptied` fetch
responses without their records, `tokens` bare SASL tokens. `charges` charges request time; `usage*` counts
usage.

- Parsed fields of a request may be cached, a decision never. Deadlines are compared each time.
- The throttle time in a response is the time left when the response is sent: the client waits no longer
  than Weir does. A response without records counts as throttled: where a hundred connections wait, a count
  of charges alone would show one wait. A broker's throttle-time metric counts such responses too.
- A fetch brings no records until the throttle time has ended that its entity was told last, on any of its
  connections. That deadline is kept; recomputing the rate would let obedient clients wait up to 11 s after
  a burst, because the padded window reads too high.
- The fetch response that exceeds the quota is delivered: the broker has read it already, and would again.
- A client that has closed with requests unanswered is kept for 30 s: it may have closed only its half, but
  a broker that hangs would keep its descriptors for ever. Its requests are forwarded when their wait is
  over, because acks=0 has no other acknowledgement than the socket's; and they are charged by the part of
  the cost that is known, and up to 200 ms of an unconfirmed one, because the broker does the work.
- Produce and fetch requests of clients that pay for time, or whose usage is recorded, wait for 64 KB or
  their end before they are looked into: small packets must not make a request cheaper, and a broker cannot
  begin with less either.
- 32 requests of a client with a request quota are under way on a connection at most, near its limit one:
  all are forwarded before the first is charged (1,010 passed in 11 s where a broker lets 40 pass).
- Gaps are measured in µs (`effects.Clock`): a broker that was idle for 0.3 to 1.5 ms has cold caches and
  parked threads, and costs more. The clock is set once per turn of the reactor, and gaps are noted for all
  clients, because they are the broker's.
- Kept bytes are bounded per direction: one buffer, a response that must be whole to be rewritten, or a
  request that must be whole. Of unsent bytes there is one batch.
"""
