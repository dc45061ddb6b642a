"""Configuration: settings, their types and defaults, checks before start-up."""
