"""Reading and changing single fields of messages without decoding them.

Offsets come from the schemas, as compiled scanners: `field_offsets` locates a field, `field_scanner` and
`stream_scanner` walk a message that may arrive in parts. Upon these, `topic_bytes` and `topic_names` find
topics, `records_remover` and `least_fetch` change fetches, and `record_batches`, `produced_records` and
`unpacked_sizes` look into records.
"""
