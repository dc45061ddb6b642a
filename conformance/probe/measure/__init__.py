"""Measuring: how exactly a target holds client quotas, as a datasheet.

Clients that always have more to send run for 75 s, all at the same time, each under a quota of its own.

- `clients`: the loads, and the requests of each. `measurement`: runs them.
- `figures`: arithmetic on what passed. `sheet`: the datasheet.
"""
