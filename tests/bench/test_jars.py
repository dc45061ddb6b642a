"""Lists of jars, with and without classifiers."""

from __future__ import annotations

import pytest

from bench.jars import LISTS, parse
from bench.jars.lock import ROOTS
from tests.kafka.jars import JarError

SHA256 = "0" * 64


def test_a_lock_file_line_gives_a_jars_path_size_and_hash() -> None:
    (jar,) = parse(f"# comment\n\norg.slf4j:slf4j-simple:2.0.17 {SHA256} 42\n", "list")
    assert (jar.size, jar.sha256) == (42, SHA256)
    assert jar.path == "org/slf4j/slf4j-simple/2.0.17/slf4j-simple-2.0.17.jar"


def test_a_classifier_is_part_of_the_file_name() -> None:
    (jar,) = parse(f"io.netty:netty-epoll:4.1:linux-x86_64 {SHA256} 42", "list")
    assert jar.path == "io/netty/netty-epoll/4.1/netty-epoll-4.1-linux-x86_64.jar"


@pytest.mark.parametrize("line", ["a:b 1 2", f"a:b:c {SHA256}", f"a:b:c:d:e {SHA256} 1", f"a:b:c {SHA256} x"])
def test_a_damaged_line_of_a_jar_list_is_an_error_that_names_the_file(line: str) -> None:
    with pytest.raises(JarError, match=r"bench/jars/x\.txt: expected"):
        parse(line, "bench/jars/x.txt")


@pytest.mark.parametrize("name", ROOTS)
def test_committed_jar_lists_contain_the_jars_they_were_made_for(name: str) -> None:
    locked = {jar.coordinates for jar in parse((LISTS / f"{name}.txt").read_text(), name)}
    assert set(ROOTS[name]) <= locked
