"""Byte rates of topics, on produce and fetch. Weir's own, not Kafka's.

`topic_rates` wraps the plans of `proxy.handlers.bandwidth` and counts the bytes that stream by: it is the
example of a byte counter. `fetch_sessions` knows the topics of fetches that name none.

- A topic's rate is charged beside the client's: it protects the topic from all clients together, and as a
  level of quotas it would be overridden by a client's own.
- Versions that name topics by id only (Produce and Fetch from v13) are not offered while a topic has a
  rate: learning ids would need a cache that can be wrong.
"""
