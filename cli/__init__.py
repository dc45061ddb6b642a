"""The `weir` command: reads options, prints results, sets exit codes (`exits`).

`main` has the commands; each has a module: `run`, `demo`, `calibrate`, `versions`, or a package: `quotas`,
`pipeline`. The commands are not part of the proxy, because they import every package, and the proxy must not.
"""
