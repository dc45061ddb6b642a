"""The check of the documentation's sentences and lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.prose import LINE_MAX, WORDS_MAX, findings, sentences, words
from tools.prose.__main__ import main

LONG = "A" + " b" * WORDS_MAX


def test_a_sentence_of_26_words_is_found_with_the_line_of_its_paragraph() -> None:
    (found,) = findings(f"# Title\n\nShort. {LONG}.\n")
    assert found.line == 3
    assert found.text.startswith(f"a sentence of {WORDS_MAX + 1} words: 'A b b")


@pytest.mark.parametrize("page", [f"* {LONG}.", f"> {LONG}.", f"# {LONG}"])
def test_long_sentences_are_found_in_lists_quotations_and_headings(page: str) -> None:
    assert len(list(findings(page))) == 1


@pytest.mark.parametrize("page", [f"| a |\n| - |\n| {LONG} |\n", f"```\n{LONG}\n```\n", f"`{LONG}` is code."])
def test_tables_blocks_of_code_and_code_in_a_line_are_no_sentences(page: str) -> None:
    assert list(findings(page)) == []


def test_a_line_of_121_characters_is_found_unless_a_link_or_a_table_makes_it_long() -> None:
    line = "a" * (LINE_MAX + 1)
    (found,) = findings(f"short\n{line}\n")
    assert found.line == 2
    assert list(findings(f"[{line}](https://kafka.apache.org)\n")) == []
    assert list(findings(f"|{line}|\n")) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One ends. Two ends! Three ends? Four.", 4),
        ("Kafka 3.9.1 and e.g. 4.2 are figures.", 1),
        ('He said "yes." Then `weir run` started.', 2),
        ("A list follows: one, two; three.", 1),
    ],
)
def test_sentences_end_at_full_stops_question_and_exclamation_marks(text: str, count: int) -> None:
    assert len(sentences(text)) == count


def test_dashes_count_as_no_word_and_figures_as_one() -> None:
    assert words("Weir \N{EN DASH} a proxy \N{EN DASH} takes 3.2 KB") == 6


def test_the_command_fails_and_names_page_and_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Short.\n\n{LONG}.\n", "utf-8")
    result = CliRunner().invoke(main, [str(page)])
    assert result.exit_code == 1
    assert f"{page}:3: a sentence of" in result.output


def test_the_command_accepts_a_page_of_short_sentences(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Short. Shorter.\n", "utf-8")
    assert CliRunner().invoke(main, [str(page)]).exit_code == 0
