"""Weir's own topics, guarded: only admins may write to them or change them through Weir.

Protected are `quota_topic`, while `quota_store` is `topic`, and the topics of `usage_topic`. Without them no
plan is changed. Admins are those who may alter quotas over the wire (`admins`), and another Weir that reaches
the cluster through this one is an ordinary client: its principal must be among them. Brokers' own principals
(`inter_broker`) are exempt. Each refused change, and each change of an admin, is in the audit log.

Refusals have the form that an authorizer's have: TOPIC_AUTHORIZATION_FAILED for the protected topics, while
the others of the request are changed. Two APIs are refused as a whole, as by a broker or because their bytes
have begun to go on: AddPartitionsToTxn, and Produce. A produce request with acks=0 has no response, so its
connection is closed, as by a broker; so is the connection of one larger than the buffer whose protected topic
is not the first.

Decisions:

- Produce requests name topics by id from v13 on. These versions are not offered while a topic is protected,
  and refused: ids in the middle of a request that streams by could not be looked up. DeleteTopics by id asks
  the broker for the protected topics' ids, on the client's connection: no cache of ids can be stale, and a
  client that may not describe a topic may not delete it by id either.
- Versions that the schemas lack are refused, for all APIs here.
- ACLs may be changed (CreateAcls, DeleteAcls): no ACL opens the way through Weir, and who may alter ACLs may
  alter the cluster. Fetches, offsets and group APIs are left to the brokers' ACLs too.
- A preferred election changes no record, and passes. An unclean one can lose records, and is refused, also if
  it names no topic and so means all.
- WriteTxnMarkers and the replication APIs (StopReplica, AlterPartition, ...) pass: a cluster's ACLs grant
  them to brokers only (ClusterAction). Without an authorizer any client can stop replicas of any topic.
- Metadata may create a missing topic. Weir creates its topics when it starts, and only admins can delete
  them through Weir.
"""
