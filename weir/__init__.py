"""Weir: a Kafka proxy that enforces Kafka's quotas on the wire.

All code of the product is imported by names that begin with `weir.`, because an installed package named
`proxy` or `cli` would overwrite or hide packages of others. The folders stay at the top of the repository:
this package contains one link per room, `proxy` to `../proxy`, and a wheel contains the linked files.

- A room is never imported by its bare name: Python would then load its modules twice, under two names, and
  the classes of one are not those of the other. Ruff refuses such imports, and tests cannot make them
  (`tests/conftest.py`).
- pyproject.toml could map `weir.proxy` to `proxy/` without links. Python would find the modules, but mypy and
  import-linter would not.
"""
