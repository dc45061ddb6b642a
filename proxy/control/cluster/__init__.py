"""Weir's own requests to brokers: discovery of brokers, their versions."""
