"""Trio's half of the proxy: the supervisor's server, and a worker's accepting and connecting.

Of the supervisor: `server` listens, discovers brokers and drains, `listeners` has the listening sockets,
`takeover` passes them to a new process. Of a worker: `data_plane` joins the parts and has the connections,
`acceptor` takes clients from copies of the sockets, `connection_limiter` decides which ones and when
(KIP-612), `establish` connects a client to its broker or refuses the client. `target` names the broker, and
its listener, behind each listener of Weir.

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
