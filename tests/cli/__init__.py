"""The weir command."""
