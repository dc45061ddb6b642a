"""Measure the cost of replication traffic: a load generator fetches as a follower does, through each target.

`rows` has the loads, `fetches` their frames, `follower` is the load generator. `leader` prepares the
broker, `targets` starts Weir with replication listeners. `python -m bench.replication.toll` measures Weir's
own code in one process, without sockets.
"""
