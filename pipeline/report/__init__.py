"""Report: what the tables say, as one HTML page that needs no network."""
