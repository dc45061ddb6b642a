"""Reading and changing single fields of messages without decoding them.

Scanning functions are generated from the schemas. `field_offsets` locates a field; `field_scanner`
scans a message that may arrive in parts, `pausing_scanner` a limited number of elements at a time. The other
modules use these three: `topic_bytes`, `topic_names` and `topic_identities` find topics,
`fetched_partitions` finds the partitions of a fetch response, `records_remover` and `least_fetch` change
fetches, `array_mask` and `endpoint_mask` hide addresses, `field_spans` reports the bytes of chosen fields,
`produced_records`, `record_batches` and `unpacked_sizes` find records and estimate their unpacked sizes.
"""
