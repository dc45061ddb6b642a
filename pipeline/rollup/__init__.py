"""Roll-up: usage by entity, hour and day; computed again only for days with new records."""
