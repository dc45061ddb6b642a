"""Decisions about frames: plans per broker version, API and version, and the capabilities that fill them. No
I/O.

`plan` defines plans, and the interface of a connection that capabilities use. `plans` has the tables of
capabilities, `decisions` the results of `admit`. `broker_query` lets a capability ask the broker, or wait for
work elsewhere, before it answers a client. `unread` counts requests that Weir cannot read, `usage_groups` has
the group of each API in usage records. Every other package is one capability.

- Plans of one table are made in three layers: capabilities that read frames in the broker's version
  (`ON_THE_WIRE`, and `FOR_CLIENTS` or `FOR_BROKERS`), then `uplift`, then capabilities that read requests in
  the client's version (`QUERYING_HANDLERS`). So capabilities do not depend on uplift.
- Replication listeners, where brokers are the clients, have plans of their own: responses there keep their
  addresses and versions.
- There is a table of plans per set of broker versions, so the broker's versions are looked up once per
  connection and not for each request.
- Request bodies are read as Kafka's generated classes read them: bytes behind the last field are ignored. A
  test compares the codec with a broker, because a request that a broker reads and Weir does not would bypass
  a quota. If only Weir needs a body and cannot read it, the request is forwarded. Headers are read strictly.
- Responses are read strictly: bytes behind the last field are an error. Weir has probably misread such a
  response, and must not rewrite addresses in it.
- Every rewrite replaces one stretch of bytes, so a frame's length is adjusted in one place.
"""
