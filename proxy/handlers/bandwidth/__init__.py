"""Byte rates of clients, on produce and fetch (KIP-13, KIP-124, KIP-219).

`bandwidth` fills the plans; it is the example of a quota that is charged by request or response.
`replica_fetches` recognises fetches between brokers.

- A request is charged when its last byte has arrived, as at a broker, so a client is never throttled within a
  frame.
- If a client with a quota sends a fetch, Weir takes the client's next request only after the response,
  because the response decides the cost. A broker, too, handles one request of a connection at a time.
  Otherwise a client could pipeline fetches to exceed its quota.
- A connection's first request is held for a limited time only. So a client that opens a connection for each
  request can exceed its quota, at Weir and at a broker. Limits of connections prevent this
  (`docs/reference/connections.md`).
"""
