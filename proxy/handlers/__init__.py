"""What to do with a frame: plans per broker version, API and version, and the capabilities that fill them. No
I/O.

`plan` defines plans and what a capability sees of a connection, `plans` has the tables of capabilities,
`broker_query` lets a capability ask the broker before it answers a client.
"""
