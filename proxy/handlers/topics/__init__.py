"""Byte rates of topics, on produce and fetch: a kind of quota that Kafka does not have.

`topic_rates` wraps the plans of `proxy.handlers.bandwidth`, and counts the bytes of frames that are forwarded
in parts: it is the example of a byte counter. `fetch_sessions` knows the topics of fetches that name no
topics. `names_by_id` has the names of topics that have ids instead.

- A topic's rate is charged in addition to the client's quota: it protects the topic from all clients
  together. If a topic's rate were a level of the quota table, a client's own quota would override it.
- No version is withheld while a topic has a rate, because many clients learn versions once.
"""
