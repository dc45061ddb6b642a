"""Probing: requests to a live server, well-formed and malformed, and the outcome of each.

Unlike the rest of this room, probing opens sockets: blocking ones, each wait with a deadline.

- `case`: a request to send and the outcomes that it permits; a result of one.
- `link`: one connection to the target. `login`: SASL on it.
- `requests/`: well-formed requests for every API and version.
- `scratch`: the run's own topic. `runner`: runs the cases. `judging`: tells if an outcome is permitted.
- `quotas/`: the profile that checks how the target enforces client quotas.
- `measure/`: how exactly the target holds quotas. `brokers/`: expected outcomes of brokers.
- `outcomes`: results as JSON, and compared with expectations or a baseline.

A run leaves nothing behind: everything that it creates has names with the run's prefix, and is removed.
"""
