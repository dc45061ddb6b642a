"""Where quotas live: a file, a topic of the cluster, the brokers themselves; and who keeps them in force."""
