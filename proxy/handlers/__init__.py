"""Decisions about frames: plans per broker version, API and version, and the capabilities that fill them. No
I/O.

`plan` defines plans and the interface of a connection to capabilities, `plans` has the tables of
capabilities, `broker_query` lets a capability ask the broker before it answers a client.
"""
