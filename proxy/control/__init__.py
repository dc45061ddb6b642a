"""The control plane: quotas in force and their stores, Weir's own requests to brokers, usage records."""
