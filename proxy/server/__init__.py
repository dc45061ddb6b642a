"""Trio's half of the proxy: accepting clients, connecting to brokers, stopping.

`server` joins the parts, logs ended connections, and drains; `listeners` accept, `connection_limiter` says
which connections and when (KIP-612), `establish` connects a client to its broker or refuses it.

- Rates and counts of connections come before TLS, and before a broker is connected: a refusal must be
  cheap.
- Connections to the bootstrap listener go to a broker whose node id is known, if there is one: quotas are
  per broker, and the connection must count for the right one.
- While a broker cannot be reached, its listener refuses connections; the port stays bound, and Weir tries
  the broker twice a second. A TLS listener that brokers share stays open, and holds the client. Refused by
  Weir for another reason, a client is held for 0.7 s: it has seen a connection that worked and broke, and
  would otherwise try hundreds of times in an outage.
"""
