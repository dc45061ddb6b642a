"""Brokers' addresses in responses, replaced by Weir's own."""
