"""Byte rates of clients, on produce and fetch (KIP-13, KIP-124, KIP-219).

`bandwidth` fills the plans; it is the example of a quota that is charged by request or response.
`replica_fetches` recognises fetches between brokers.

- A request is charged when its last byte has arrived, as at a broker, so a client is never throttled within a
  frame.
- A fetch of a client with a quota is serial, because its response decides its cost. A broker, too, handles
  one request of a connection at a time. Otherwise a client could pipeline fetches to exceed its quota.
- A client that opens a connection for each request can exceed its quota by the first requests, whose hold is
  bounded, as it can at a broker. Limits of connections prevent this (`docs/connections.md`).
"""
