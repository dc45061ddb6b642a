"""Configuration: settings, their types and defaults, checks before start-up.

`settings` has every key, with type, default and description: the file's keys and the options of `weir run`
are made from this one list. `config` reads and checks them; `connection_rules`, `usage_rules`,
`request_costs`, `principals` and `credentials` check the settings of one capability. A new key: a field of
`Settings`, a check, and `docs/configuration.md`. A mistake is one line that says what to do (`config_error`).
"""
