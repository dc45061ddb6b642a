"""Configuration: settings, their types and defaults, and the checks before start-up.

`settings` has every key, with type, bounds, default and description: the keys of the file and the options of
`weir run` are made from this list. `config` reads and checks the settings; `request_costs`, `principals`
and `replication` check those of one capability.

A new key is a field of `Settings` and a line in `docs/reference/configuration.md`. A mistake of the operator
raises `ConfigError`, whose text is one line that says what to do.
"""
