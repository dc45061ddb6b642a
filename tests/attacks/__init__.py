"""Attackers beside a polite client: how long a turn of the reactor becomes, and how long the client waits.

`python -m tests.attacks` runs `weir` in front of stub brokers, with attackers in a process of their own.
"""
