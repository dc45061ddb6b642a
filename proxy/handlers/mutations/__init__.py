"""Partition mutations: creation, growth and deletion of topics, and automatic creation (KIP-599).

`mutations` has the quota of the three APIs, `mutated_topics` their costs, `topic_queries` the questions to a
broker, `charged_mutation` the charges; `auto_creation` and `pending_creations` watch Metadata requests;
`streams_groups` internal topics of streams groups; `cluster_state` (with the harmless Metadata requests) and
`recent_topics` the known topics of the cluster; `decoded_requests` reads whole requests.

- Mutations are charged before they are forwarded and refunded if the broker refuses: the controller's order
  (check, then charge) cannot be had from outside. A shadow quota is charged from the broker's response, so
  the broker gets the request as without a quota.
- Topics are admitted in the request's order, also where a KRaft controller takes the order of a Java hash
  set: predictable for people, and the number of partitions is what the quota limits.
- Error 89 carries its text: brokers leave it null, so clients that print only the error's text now print
  something.
- A mutation that cannot be known to fail (a bad config) is refused with 89 while there are no tokens.
- Hold mode does not hold mutations: brokers that held responses had no mutation quotas.
- Automatic creations are charged when the client asks for topics again: the broker does not tell of them,
  and waiting for the topic would hold the client's metadata.
- Bounds: 1 MB and 20,000 elements of a request that must be whole, 16 rounds of one request, 1,000 pending
  topics per client and 100,000 in all, 10,000 recent topics, 1,000 harmless requests of 10 KB. A Metadata
  request looks for 50 pending topics.
- Loops over topics pause (`protocol.pieces`): a large request delays other connections by a piece of
  its work.
"""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
