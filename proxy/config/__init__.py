"""Configuration: the settings, their types and defaults, and what is checked before start-up."""
