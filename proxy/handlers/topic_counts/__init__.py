"""Limits on the number of topics and partitions by prefix (`quotas.topic_counts`): creations above a limit
are refused with POLICY_VIOLATION, as by a broker with a CreateTopicPolicy (KIP-108).

`counted_topics` is the way to the object that counts, in the supervisor; `counted_mutations` has creations,
growth and deletions, `created_topics` topics that brokers create by themselves: by Metadata, and for a
streams group.

- A broker tells of a topic's own errors before it asks its policy, and asks its policy before the quota on
  mutations (ReplicationControlManager, ZkAdminManager). So this layer lies around that of `mutations`, and
  forwards topics that are sure to fail. If a limit would refuse a topic, the broker validates all those that
  count, because only it knows some errors.
- A CreateTopicPolicy is not asked about CreatePartitions. Weir answers likewise, so that no topic grows past
  the limit.
- Old brokers ask no policy about automatic creation. Here it is refused as brokers from 2.8 on refuse it: the
  topic stays unknown.
- A streams group's heartbeat is refused as a whole, because one answer is for all its internal topics. Only
  heartbeats with a topology are looked at: without one, the group has been admitted before.
"""
