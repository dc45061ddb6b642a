"""Weir's own topics, guarded: only admins may write to them or change them through Weir.

The topics of `quotas`, `usage`, `events_topic` and `usage_share_topic` are protected. If no topic is
protected, no plan is changed. Admins are the principals that may alter quotas over the wire (`quota_admins`).
Another Weir that reaches the cluster through this one is an ordinary client: its principal must be among the
admins. Brokers at replication listeners are exempt. Each refused change, and each change by an admin, is in
the audit log.

Refusals have the form of an authorizer's: TOPIC_AUTHORIZATION_FAILED for the protected topics, while the
other topics of the request are changed. Two APIs of clients are refused as a whole: AddPartitionsToTxn, as by
a broker, and Produce, because a part of the request may be forwarded already. A produce request with acks=0
has no response, so its connection is closed, as by a broker. The connection is also closed if a produce
request is larger than the buffer and its protected topic is not the first.

Decisions:

- Produce requests have topic ids from v13 on (`topics.names_by_id`). Weir forwards records only for ids whose
  names are known, because a topic that was deleted and made again has a new id. It asks the broker for an
  unknown name on the client's connection. If the broker gives none, the topic may be protected: its records
  are refused with UNKNOWN_TOPIC_ID, all topics of the request together. The broker gives no name for a topic
  that it does not know, and refuses such records anyway. It gives none either to a client that may not
  describe the topic. By Kafka's rules such a client may not write to the topic, unless an ACL denies Describe
  alone; no client library could then find the topic. A large request with an unknown name behind its first
  part closes the connection, and the client's next request asks for the name.
- For DeleteTopics by id, Weir asks the broker for the protected topics' ids, on the client's connection. A
  client that may not describe a topic may not delete the topic by id either.
- Versions that the schemas lack are refused, for all APIs here.
- ACLs may be changed (CreateAcls, DeleteAcls): no ACL allows a change through Weir, and a client that may
  alter ACLs may alter the cluster. Fetches, offsets and group APIs are left to the brokers' ACLs, too.
- A preferred election changes no record, and is forwarded. An unclean election can lose records, and is
  refused, also if it names no topic and so applies to all.
- WriteTxnMarkers and AlterReplicaLogDirs are refused with CLUSTER_AUTHORIZATION_FAILED, the brokers' code for
  them. Requests by which brokers and controllers change replicas (StopReplica, ...) are refused as a whole:
  with these, any client could delete a replica at brokers without an authorizer.
- Metadata may create a missing topic. Weir creates its topics when it starts, and only admins can delete
  them through Weir.
"""
