"""SASL exchanges, followed as they pass: they tell who the client is."""
