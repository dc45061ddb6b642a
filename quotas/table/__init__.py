"""Quota tables: whom a limit is for, which entry wins and why, and the formats that quotas are written in.

`entities` names users, client-ids, topics and addresses; `limits` finds the limit of a client; `quota_table`
holds all entries, `explain` tells why one wins. `quota_entry`, `quota_file` and `quota_edit` are the TOML
format, `zookeeper_layout` and `imported` the forms in which brokers keep quotas.
"""
