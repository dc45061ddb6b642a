"""Tools for developers; nothing here is shipped."""
