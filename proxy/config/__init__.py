"""Configuration: settings, their types and defaults, checks before start-up.

`settings` has every key, with type, bounds, default and description: the file's keys and the options of
`weir run` are made from this one list. `config` reads and checks them; `request_costs` and `principals`
check the settings of one capability. A new key: a field of `Settings`, and `docs/configuration.md`. A mistake
is one line that says what to do (`ConfigError`).
"""
