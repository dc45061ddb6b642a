"""Quota stores: a file, a topic of the cluster, the brokers; and the quota manager."""
