"""Reading and changing single fields of messages without decoding them.

Scanning functions are generated from the schemas. `field_offsets` locates a field; `field_scanner` and
`stream_scanner` scan a message that may arrive in parts. The other modules use these three: `topic_bytes` and
`topic_names` find topics, `records_remover` and `least_fetch` change fetches, `produced_records`,
`record_batches` and `unpacked_sizes` find records and estimate their unpacked sizes.
"""
