"""Several Weirs share quotas over a topic (`usage_share_topic`).

- `topic`: the topic, through librdkafka.
- `reader`: reads and decodes reports on a thread of its own, and hands sums over.
- `sharing`: sends own usage and charges that of others, on Trio's thread.

`quotas.sharing` has the rules. Traffic never waits for the topic.
"""
