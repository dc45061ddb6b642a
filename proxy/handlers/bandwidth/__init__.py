"""Byte rates of clients, on produce and fetch (KIP-13, KIP-124, KIP-219).

`bandwidth` fills the plans, and is the example of a quota that is charged by request or response.
`replica_fetches` recognises brokers' own fetches.

- Charges wait for a request's last byte, as a broker's: a client cannot be throttled within a frame.
- A fetch under a quota is serial: its cost is known from its response, and a broker too handles one request
  of a connection at a time, so pipelining is no way around the quota.
- Clients that connect anew for each request can exceed their quota with held first requests, as they can at
  a broker; limits of connections help (`docs/connections.md`).
"""
