"""Failures within a matrix: none is lost, and each is named."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.matrix import check_each, in_one_test


def test_every_case_is_checked_after_a_failure_and_all_failures_are_named() -> None:
    checked: list[int] = []

    def is_even(case: int) -> None:
        checked.append(case)
        assert case % 2 == 0, f"{case} is odd"

    with pytest.raises(AssertionError, match="1 is odd") as caught:
        check_each(range(5), is_even, name=lambda case: f"v{case}")
    assert checked == [0, 1, 2, 3, 4]
    assert caught.value.__notes__ == ["case v1; failed 2 of 5: v1, v3"]


def test_an_expected_error_that_is_not_raised_fails_its_case() -> None:
    def raises(case: str) -> None:
        with pytest.raises(ValueError, match="invalid"):
            int(case)

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE") as caught:
        check_each(["x", "1"], raises)
    assert caught.value.__notes__ == ["case '1'; failed 1 of 2: '1'"]


def test_a_matrix_without_cases_fails() -> None:
    with pytest.raises(AssertionError, match="without cases"):
        check_each([], print)

    @in_one_test
    @pytest.mark.parametrize("version", [1, 2])
    @pytest.mark.parametrize("user", [])
    def test_something(version: int, user: str) -> None:
        """Is not called."""

    with pytest.raises(AssertionError, match="without cases"):
        test_something()


def test_a_matrix_is_one_test_of_every_combination() -> None:
    checked: list[tuple[int, str, int]] = []

    @in_one_test
    @pytest.mark.parametrize("version", iter([1, 2]))
    @pytest.mark.timeout(30)
    @pytest.mark.parametrize(("user", "size"), [("a", 1), pytest.param("b", 2, id="large")])
    def test_something(version: int, user: str, size: int) -> None:
        """Something."""
        checked.append((version, user, size))
        assert version < 2 or user == "a"

    assert (test_something.__name__, test_something.__doc__) == ("test_something", "Something.")
    assert not inspect.signature(test_something).parameters
    assert [mark.name for mark in vars(test_something)["pytestmark"]] == ["timeout"]
    for _ in range(2):  # cases are not used up
        with pytest.raises(AssertionError) as caught:
            test_something()
        assert caught.value.__notes__ == ["case large version=2; failed 1 of 4: large version=2"]
    assert set(checked) == {(1, "a", 1), (1, "b", 2), (2, "a", 1), (2, "b", 2)}
    assert len(checked) == 8


@pytest.mark.parametrize(
    ("ids", "named"),
    [(None, "number=5"), (["five"], "five"), (lambda value: f"no. {value}", "no. 5"), ([None], "number=5")],
)
def test_a_case_is_named_as_pytest_names_a_test(ids: Any, named: str) -> None:
    @in_one_test
    @pytest.mark.parametrize("number", [5], ids=ids)
    def test_something(number: int) -> None:
        assert number != 5

    with pytest.raises(AssertionError) as caught:
        test_something()
    assert caught.value.__notes__ == [f"case {named}; failed 1 of 1: {named}"]
