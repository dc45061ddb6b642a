"""Trio's half of the proxy: accepting clients, connecting to brokers, stopping."""
