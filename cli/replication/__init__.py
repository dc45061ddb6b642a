"""The `weir replication` commands. `show` formats what `command` asks a running Weir for."""
