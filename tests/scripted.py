"""Tests that are one asynchronous function: its first argument is made for it, the others are fixtures."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

Script: TypeAlias = Callable[..., Awaitable[None]]
Test: TypeAlias = Callable[..., None]


def scripted(run: Callable[[Callable[[Any], Awaitable[None]]], None]) -> Callable[[Script], Test]:
    """Make a test of a script that `run` calls with its first argument."""

    def decorate(script: Script) -> Test:
        return _test(script, lambda fixtures: run(lambda first: script(first, **fixtures)))

    return decorate


def staged(given: str = "", **options: Any) -> Callable[[Script], Test]:
    """Make a test of a script for the fixture `play`, with its options; `given` is a fixture with more."""
    others = ["play", *([given] if given else [])]

    def decorate(script: Script) -> Test:
        wanted = inspect.signature(script).parameters

        def run(fixtures: dict[str, Any]) -> None:
            passed = {name: value for name, value in fixtures.items() if name in wanted}
            more = fixtures[given] if given else {}
            fixtures["play"](lambda stage: script(stage, **passed), **more, **options)

        return _test(script, run, others)

    return decorate


def _test(script: Script, run: Callable[[dict[str, Any]], None], others: list[str] | None = None) -> Test:
    """A test by the script's name, whose fixtures are the script's and these others."""

    @functools.wraps(script)
    def test(**fixtures: Any) -> None:
        run(fixtures)

    names = dict.fromkeys([*(others or []), *list(inspect.signature(script).parameters)[1:]])
    kind = inspect.Parameter.KEYWORD_ONLY
    test.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # pytest reads the fixtures there
        [inspect.Parameter(name, kind) for name in names]
    )
    return test
