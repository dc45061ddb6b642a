"""A mark for tests that replace or count functions of the data path: compiled classes allow neither."""

from __future__ import annotations

import pytest

from weir.quotas.limiters import budgets

interpreted = pytest.mark.skipif(
    not str(budgets.__file__).endswith(".py"), reason="replaces or counts functions, compiled ones cannot be"
)
