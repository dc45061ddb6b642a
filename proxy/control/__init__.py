"""The control plane: the quotas in force and where they live, the brokers, usage records."""
