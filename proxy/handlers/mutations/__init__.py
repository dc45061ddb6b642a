"""Partition mutations: creation, growth and deletion of topics, and automatic creation (KIP-599).

`mutations` has the quota of the three APIs, `mutated_topics` their costs, `topic_queries` the questions to a
broker, `charged_mutation` the charges. `auto_creation` forwards Metadata requests, which may create topics;
`pending_creations` keeps pending topics: missing topics that a broker may be creating. `streams_groups`
charges the internal topics of streams groups. `cluster_state` has the facts about the cluster's topics, with
harmless requests: Metadata requests that recently could not create a topic. `recent_topics` keeps topics that
clients recently changed through Weir; `decoded_requests` decodes whole requests.

- Mutations are charged before they are forwarded and refunded if the broker refuses: a proxy cannot charge
  between the controller's check and its change. A shadow quota is charged from the broker's response, so the
  broker gets the request as without a quota.
- Weir forwards parts of one request up to 16 times: if the broker refuses topics, their charges are refunded,
  and the quota may admit further topics.
- Topics are admitted in the request's order, although a KRaft controller takes the order of a Java hash set.
  The request's order is predictable for people, and the quota limits only the number of partitions.
- Weir sends error 89 (THROTTLING_QUOTA_EXCEEDED) with a text. Brokers leave the text null, so clients that
  print only the text would print nothing.
- While the client's balance is negative, a mutation is refused with error 89 even if the broker would refuse
  it for another reason that Weir cannot see, such as a bad config.
- An automatic creation is charged when the client sends Metadata again: the broker does not report the
  creation, and waiting until the topic exists would delay the Metadata response.
- Bounds: a request that is decoded as a whole has at most 1 MB and 20,000 elements. There are at most 1,000
  pending topics per client and 100,000 in all, 10,000 recently changed topics, and 1,000 harmless requests
  of 10 KB. A Metadata request looks for 50 pending topics.
- Loops over topics pause (`protocol.pieces`): a large request delays other connections by a piece of
  its work.
"""
