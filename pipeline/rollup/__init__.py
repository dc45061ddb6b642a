"""Roll-up: use by entity and hour and day, made anew only for the days of which something came."""
