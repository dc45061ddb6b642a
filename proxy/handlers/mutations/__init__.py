"""Partition mutations: creation, growth and deletion of topics, and automatic creation (KIP-599)."""
