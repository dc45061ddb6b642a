"""Replication quotas (KIP-73)."""
