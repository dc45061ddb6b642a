"""Weir's own topics, guarded: only admins may write to them or change them through Weir.

Two kinds of topics are protected: `quota_topic`, if `quota_store` is `topic`, and the topics of
`usage_topic`. If no topic is protected, no plan is changed. Admins are the principals that may alter quotas
over the wire (`quota_admins`). Another Weir that reaches the cluster through this one is an ordinary client:
its principal must be among the admins. Brokers at replication listeners are exempt. Each refused
change, and each change by an admin, is in the audit log.

Refusals have the form of an authorizer's: TOPIC_AUTHORIZATION_FAILED for the protected topics, while the
other topics of the request are changed. Two APIs of clients are refused as a whole: AddPartitionsToTxn, as by
a broker, and Produce, because a part of the request may be forwarded already. A produce request with acks=0
has no response, so its connection is closed, as by a broker. The connection is also closed if a produce
request is larger than the buffer and its protected topic is not the first.

Decisions:

- Produce requests name topics by id from v13 on. These versions are not offered while a topic is protected,
  and refused: topic ids in a request that is forwarded in parts could not be looked up. For DeleteTopics by
  id, Weir asks the broker for the protected topics' ids, on the client's connection: no cached id can be
  stale, and a client that may not describe a topic may not delete it by id either. Rejected for Produce: a
  cache of ids from Metadata. Weir does not decode the topics of Metadata, and a recreated topic has a new id
  that Weir does not know yet: a record that a client then writes by id to the quota topic would change
  quotas. The price is a limit to v12 (each client that knows v13 knows v12, too) and 2.2 us for a request
  with another topic than the one before.
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
