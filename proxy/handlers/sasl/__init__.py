"""SASL exchanges: read while they pass, they tell the client's principal."""
