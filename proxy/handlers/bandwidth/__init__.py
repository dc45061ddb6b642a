"""Byte rates of clients, on produce and fetch (KIP-13, KIP-124, KIP-219)."""
