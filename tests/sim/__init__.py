"""A seeded simulation of many connections through relays, in simulated time, against a model."""
