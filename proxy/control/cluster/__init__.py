"""Weir's own requests to brokers: discovery of brokers, their versions.

`access` has TLS and login (`login`), and sends a request on a connection of its own; `connection` sends one
request at a time; `discovery` asks for brokers and versions. Queries on behalf of a client are not here: they
go over the client's own connection (`proxy.handlers.broker_query`).
"""
