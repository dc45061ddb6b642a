"""A mark for tests that replace, count or read functions of the data path: compiled ones allow none of it."""

from __future__ import annotations

import pytest

from weir.quotas.limiters import budgets

interpreted = pytest.mark.skipif(
    not str(budgets.__file__).endswith(".py"), reason="replaces, counts or reads functions"
)
