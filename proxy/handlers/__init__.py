"""Decisions about frames: plans per broker version, API and version, and the capabilities that fill them. No
I/O.

`plan` defines plans and what a capability sees of a connection, `plans` has the tables of capabilities,
`decisions` the results of `admit`, also deferred responses, `broker_query` lets a capability ask the broker
before it answers a client. `unread` counts requests that Weir cannot read, `usage_groups` has
each API's group in usage records. Every other package is one capability.

- Plans of one table are made in three layers: capabilities that read frames in the broker's version
  (`ON_THE_WIRE`), then `uplift`, then capabilities that read requests in the client's version
  (`QUERYING_HANDLERS`). So neither side knows of the other.
- There is a table of plans per set of broker versions: nothing per request depends on the broker.
- Request bodies are read as Kafka's generated classes read them, bytes left over ignored; where only Weir
  needs a body that it cannot read, the request passes. Reading less than a broker would be a way around a
  quota, so a test compares the codec with a broker. Headers are read strictly.
- Responses are read strictly, and bytes left over are an error: more likely Weir has misread the response,
  and must not rewrite addresses in it.
- Every rewrite is one edit of one stretch of bytes, so a frame's length is adjusted in one place.
"""
