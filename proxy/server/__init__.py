"""Trio's half of the proxy: accepting clients, connecting to brokers, stopping.

`server` joins the parts, logs ended connections, and drains. `listeners` has the listening sockets,
`acceptor` takes clients from them, `connection_limiter` decides which ones and when (KIP-612), `establish`
connects a client to its broker or refuses the client. `takeover` passes the listeners to a new process.
`target` names the broker, and its listener, behind each listener of Weir.

- Rates and numbers of connections are checked before the TLS handshake and before a broker is connected, so
  that a refusal costs little.
- Connections to the bootstrap listener go to a broker whose node id is known, if there is one: quotas are
  per broker, and the connection must count for its own broker.
- While a broker cannot be reached, its listener refuses connections: clients that are accepted assume a live
  broker, and may spin while they wait (kafka-python). Any process that shares the socket can have it refuse
  and accept again, so no other has to be told. The port stays bound, and Weir tries to connect to the broker
  twice a second. A TLS listener that brokers share stays open, and holds the client.
- A replication listener for each broker leads to the broker's inter-broker listener. No limit of connections
  applies there, and the state of a broker (up, down) does not depend on these connections.
- A client that Weir refuses for another reason is held for 0.7 s. Such a client has seen an established
  connection break, and would otherwise reconnect hundreds of times during an outage.
"""
