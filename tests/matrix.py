"""Many cases in one test: thousands of test items cost more to collect than the cases take to run."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

C = TypeVar("C")
Case = tuple[str, dict[str, Any]]
"""A name and arguments."""
PARAM = type(pytest.param())


def first_core(values: Iterable[object], core: int = 1) -> list[Any]:
    """Return the values for `pytest.mark.parametrize`; all after the first `core` are `slow`: they hold the
    same rule with other numbers.
    """
    listed = list(dict.fromkeys(values))
    rest = (value if isinstance(value, tuple) else (value,) for value in listed[core:])
    return [*listed[:core], *(pytest.param(*each, marks=pytest.mark.slow) for each in rest)]


def check_each(cases: Iterable[C], check: Callable[[C], object], *, name: Callable[[C], str] = repr) -> None:
    """Check every case, also after a failure. Raises the first failure, with a note that names every case
    that failed; raises AssertionError if there are no cases.
    """
    first: BaseException | None = None
    failed: list[str] = []
    count = 0
    for case in cases:
        count += 1
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # raised below
            first = first or error
            failed.append(name(case))
    assert count, "a matrix without cases proves nothing"
    if first is not None:
        first.add_note(f"case {failed[0]}; failed {len(failed)} of {count}: {', '.join(failed)}")
        raise first


def in_one_test(check: Callable[..., object]) -> Callable[[], None]:
    """Make one test of all combinations of the parameters that `pytest.mark.parametrize` gives below.

    Fixtures are not possible: nothing is set up or torn down between the cases.
    """
    marks: list[pytest.Mark] = getattr(check, "pytestmark", [])
    axes = [_axis(mark) for mark in marks if mark.name == "parametrize"]
    cases = [_joined(parts) for parts in product(*axes)]

    def test() -> None:
        check_each(cases, lambda case: check(**case[1]), name=lambda case: case[0])

    named_as(check, test)
    test.pytestmark = [mark for mark in marks if mark.name != "parametrize"]  # type: ignore[attr-defined]  # pytest's
    return test


def named_as(check: Callable[..., object], test: Callable[..., None]) -> Callable[..., None]:
    """Give `test` the name and place of `check`, but keep its own arguments: pytest reads them."""
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(test, attribute, getattr(check, attribute))
    return test


def _axis(mark: pytest.Mark) -> list[Case]:
    """The cases of one parametrize mark."""
    argnames, values = mark.args
    names = argnames.replace(" ", "").split(",") if isinstance(argnames, str) else list(argnames)
    ids = mark.kwargs.get("ids")
    listed = None if ids is None or callable(ids) else list(ids)
    cases = []
    for number, value in enumerate(values):
        given: tuple[Any, ...] = (value,) if len(names) == 1 else tuple(value)
        named: object = None
        if isinstance(value, PARAM):
            given, named = tuple(value.values), value.id
        elif listed is not None:
            named = listed[number]
        if named is None:
            each = map(ids if callable(ids) else lambda _value: None, given)
            named = " ".join(_shown(*one) for one in zip(names, given, each, strict=True))
        cases.append((str(named), dict(zip(names, given, strict=True))))
    return cases


def _shown(name: str, value: object, named: object) -> str:
    """A value as the test names it, or in short."""
    text = repr(value)
    return str(named) if named is not None else f"{name}={text if len(text) <= 60 else text[:57] + '...'}"


def _joined(parts: tuple[Case, ...]) -> Case:
    """One case of one part of each axis."""
    return " ".join(name for name, _given in parts), {
        name: value for _name, given in parts for name, value in given.items()
    }
