"""Quota tables: the configured quotas, the look-up of a client's limit, and the formats of quotas.

`entities` has the subjects of quotas (users, client-ids, topics, addresses) and the precedence of levels;
`options` the pacing and scope of an entry. `quota_table` has all entries; `limits` looks up the limit of a
client; `explain` lists the entries that could apply to a client, and the reason why one wins. `names` and
`bounded_names` have canonical and shortened names. `zookeeper_layout` and `imported` import the quotas that
brokers store.

`quota_file` reads and writes the TOML file. `quota_entry` has the format of an entry of quotas,
`replication_entry` that of replication throttles. `quota_edit` and `replication_edit` change the text of a
file, by the lines that `entry_places` and `file_lines` find.
"""
