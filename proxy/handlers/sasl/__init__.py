"""SASL exchanges: Weir forwards and reads them to learn the client's principal."""
