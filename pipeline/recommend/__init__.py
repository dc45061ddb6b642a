"""Recommend: a quota file from what was used, each value with its reason."""
