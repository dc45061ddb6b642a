"""Recommend quotas: write a quota file from recorded usage, with a reason for each value."""
