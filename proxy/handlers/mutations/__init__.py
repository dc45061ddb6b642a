"""Partition mutations: topics created, enlarged and deleted, automatic creation too (KIP-599)."""
