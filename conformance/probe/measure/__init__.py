"""Measuring: how exactly a target holds client quotas, as a datasheet.

Clients that always have more to send run for 75 s, all at the same time, each under a quota of its own.

- `load`: a client's load, driven by a clock that is an argument. `figures`: arithmetic on what passed.
- `clients`: the loads, and the requests of each. `measurement`: runs them. `sheet`: the datasheet.
"""
