"""The `weir` command: reads options, prints results, sets exit codes (`exits`).

`main` has the commands, a module each: `run`, `demo`, `calibrate`, `versions`, `quotas` and `pipeline` with
theirs. A room of its own because the command starts every room, and the proxy must not import them.
"""
