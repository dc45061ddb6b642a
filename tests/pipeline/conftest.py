"""One Spark session for all tests of the pipeline, because it takes seconds to start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from click.testing import CliRunner

from tests.integration.pipeline_jobs import Ended
from tests.pipeline.spark_cluster import FEW_ROWS
from weir.cli.main import weir
from weir.pipeline.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HANGS_S = 1800
CommandsHere: TypeAlias = "Callable[[Iterable[Sequence[str]], Path], list[Ended]]"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield the shared Spark session; tests that use it are marked `spark`."""
    settings = {"spark.sql.adaptive.enabled": "false"}
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:  # jobs in processes of their own choose for themselves
            patch.setenv("SPARK_CONF_DIR", str(FEW_ROWS))
            spark = stack.enter_context(session("tests", master="local[2]", settings=settings))
        yield spark


def _always(spark: SparkSession) -> Callable[..., AbstractContextManager[SparkSession]]:
    """Return a function in the place of `session` that yields this one, and does not stop it."""

    @contextmanager
    def shared(_name: str, **_: object) -> Iterator[SparkSession]:
        yield spark

    return shared


@pytest.fixture(scope="module")
def run(spark: SparkSession) -> Iterator[Callable[..., None]]:
    """Yield a function that runs `weir pipeline` to its end, in the session of the tests."""

    def run(*arguments: str) -> None:
        done = CliRunner().invoke(weir, ["pipeline", *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weir.pipeline.spark.session", _always(spark))
        yield run


@pytest.fixture
def commands_here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    """Return a function that runs several `weir …` in a directory, in the session of the tests."""
    monkeypatch.setattr("weir.pipeline.spark.session", _always(spark))

    def commands_here(all_arguments: Iterable[Sequence[str]], directory: Path) -> list[Ended]:
        monkeypatch.chdir(directory)
        done = [CliRunner().invoke(weir, arguments) for arguments in all_arguments]
        return [Ended(each.exit_code, each.stdout, each.stderr) for each in done]

    return commands_here


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings about the pipes of PySpark's JVM, which only the garbage collector closes. A
    time limit finds hangs only: on a busy machine, Spark takes many times as long.
    """
    for item in items:
        if item.get_closest_marker("spark") is not None:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(HANGS_S))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
