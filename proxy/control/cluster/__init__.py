"""Weir's own requests to brokers: discovery of brokers, their versions.

`access` has address, TLS and login (`login`), `connection` sends one request at a time, `question` one
request on a connection of its own; `discovery` and `broker_versions` ask. Queries on behalf of a client are
not here: they go over the client's own connection (`proxy.handlers.broker_query`).
"""
