"""Accepting clients, connecting them to their brokers, and stopping: Trio's half of the proxy."""
