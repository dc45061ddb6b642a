"""Weir's own requests to brokers: to discover brokers, and to learn their versions.

`access` connects with TLS and SASL (`login`), and sends a request on a connection of its own. `connection`
sends one request at a time; `discovery` asks for brokers and versions; `broker_states` knows which brokers
are down. Queries on behalf of a client are in
`proxy.handlers.broker_query`: they use the client's own connection.
"""
