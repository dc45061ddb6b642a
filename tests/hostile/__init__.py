"""Hostile and broken peers of a real `weir run`: memory bounded, the others served, descriptors closed."""
