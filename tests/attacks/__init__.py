"""Attackers beside a polite client: how long a turn of the reactor becomes, and how long the client waits.

`walk` presents requests and responses of every API, of every size, to one relay in this process and measures
the CPU of each turn. `python -m tests.attacks` runs `weir` in front of stub brokers, with attackers in a
process of their own.
"""
