"""Failures within a matrix: none is lost, and each is named."""

from __future__ import annotations

import pytest

from tests.matrix import check_each, in_one_test


def test_every_combination_of_a_matrix_is_checked_after_a_failure_and_all_failures_are_named() -> None:
    checked: list[tuple[int, str]] = []

    @in_one_test
    @pytest.mark.parametrize("version", [1, 2])
    @pytest.mark.parametrize("user", ["a", pytest.param("b", id="bob")])
    def check(version: int, user: str) -> None:
        checked.append((version, user))
        assert version < 2

    with pytest.raises(AssertionError) as caught:
        check()
    assert set(checked) == {(1, "a"), (1, "b"), (2, "a"), (2, "b")}
    names = ("user='a' version=2", "bob version=2")
    assert caught.value.__notes__ == [f"case {names[0]}; failed 2 of 4: {', '.join(names)}"]


def test_a_matrix_without_cases_fails() -> None:
    with pytest.raises(AssertionError, match="without cases"):
        check_each([], print)
