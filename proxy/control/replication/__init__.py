"""Replication throttles (KIP-73): reads them from their source, and puts them in force.

`follower` puts throttles in force, after `topic_ids` has asked the cluster for the ids of their topics: from
Fetch v13 on replicas name topics by id. The sources are the quota table (`table_source`), the brokers
(`broker_source`, which reads responses with `described_configs`) and ZooKeeper (`zookeeper_source`).
`sources` has their interface, `readable` skips values that Weir cannot use, `cluster_connection` keeps one
connection to the cluster.
"""
