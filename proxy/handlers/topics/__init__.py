"""Byte rates of topics, on produce and fetch."""
