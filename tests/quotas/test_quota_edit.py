"""Changing the text of a quota file: what changes, and that nothing else does."""

from functools import partial
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.work import steps
from tests.interpreted import interpreted
from tests.quotas.strategies import options, quotas, rates, tables
from weir.quotas import DEFAULT, Entity, Prefix, QuotaFileError, QuotaKey, QuotaTable, parse, render
from weir.quotas.table import quota_text
from weir.quotas.table.quota_edit import edited
from weir.quotas.table.quota_entry import DEFAULT_MARKER, entry_lines
from weir.quotas.table.quota_file import entries_of, read
from weir.quotas.table.quota_table import Quota, has_budgets
from weir.quotas.table.quota_text import QuotaText

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
MUTATIONS = QuotaKey.CONTROLLER_MUTATION_RATE
ALICE, BOB, ANY = Entity("alice"), Entity("bob"), Entity(client_id=DEFAULT)

FILE = """\
# Quotas of the cluster. Ask ops before you change them.

# Alice runs the nightly export.
[[quota]]   # INC-4711
user = "alice"   # not alice2
# raised for the migration
  producer_byte_rate = 1_048_576   # 1 MiB/s

consumer_byte_rate = 2e6
# end of alice

# Everybody else
[[quota]]
client_id = '<default>'
consumer_byte_rate = 0x10_0000

[[quota]]
user = "bob"
producer_byte_rate = 5
# eof
"""

ONLY: list[tuple[str, dict[Quota, float | None], str, str]] = [
    # What happens, by which changes, which lines of FILE become which.
    ("nothing", {}, "", ""),
    ("the same value keeps its spelling", {(ANY, FETCH): 1048576.0, (ALICE, PRODUCE): 1048576.0}, "", ""),
    ("what is not there is not removed", {(BOB, FETCH): None, (Entity("eve"), FETCH): None}, "", ""),
    (
        "another value",
        {(ALICE, PRODUCE): 7.0},
        "  producer_byte_rate = 1_048_576   # 1 MiB/s\n",
        "  producer_byte_rate = 7   # 1 MiB/s\n",
    ),
    ("a value less", {(ALICE, PRODUCE): None}, "  producer_byte_rate = 1_048_576   # 1 MiB/s\n", ""),
    (
        "a value more",
        {(ANY, MUTATIONS): 0.5},
        "consumer_byte_rate = 0x10_0000\n",
        "consumer_byte_rate = 0x10_0000\ncontroller_mutation_rate = 0.5\n",
    ),
    (
        "a new entry",
        {(Entity("eve", Prefix("x")), FETCH): 9.0},
        "# eof\n",
        '# eof\n\n[[quota]]\nuser = "eve"\nclient_id_prefix = "x"\nconsumer_byte_rate = 9\n',
    ),
    (
        "an entry less, with its comment",
        {(ANY, FETCH): None},
        "# Everybody else\n[[quota]]\nclient_id = '<default>'\nconsumer_byte_rate = 0x10_0000\n\n",
        "",
    ),
    (
        "the last entry less, with its comment",
        {(BOB, PRODUCE): None},
        '\n[[quota]]\nuser = "bob"\nproducer_byte_rate = 5\n# eof\n',
        "",
    ),
    (
        "the first entry less, but not what is said of the file",
        {(ALICE, PRODUCE): None, (ALICE, FETCH): None},
        FILE[FILE.index("# Alice") : FILE.index("# Everybody")],
        "",
    ),
]


def in_blocks(text: str) -> QuotaText:
    return QuotaText(text, read(text).quotas)


@pytest.mark.parametrize("shadow", [False, True], ids=["enforced", "shadow"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["unix", "dos"])
@pytest.mark.parametrize(
    ("changes", "before", "after"), [case[1:] for case in ONLY], ids=[case[0] for case in ONLY]
)
def test_editing_a_quota_file_leaves_all_other_text_unchanged(
    changes: dict[Quota, float | None], before: str, after: str, line_end: str, *, shadow: bool
) -> None:
    def in_mode(text: str) -> str:
        if shadow:
            text = text.replace('user = "alice"', 'mode = "shadow"\nuser = "alice"')
            text = text.replace("\nclient_id = '<default>'", "\nclient_id = '<default>'\nmode = 'shadow'")
            text = text.replace('user = "bob"\n', 'user = "bob"\nmode = "shadow"\n')
            text = text.replace('"x"\n', '"x"\nmode = "shadow"\n')
        return text.replace("\n", line_end)

    wanted = FILE.replace(before, after)
    assert (wanted == FILE) == (before == after)
    assert edited(in_mode(FILE), changes, shadow=shadow) == in_mode(wanted)
    with patch.object(quota_text, "BLOCK", 1):
        assert str(in_blocks(in_mode(FILE)).edited(changes, shadow=shadow)) == in_mode(wanted)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param(
            '[[quota]]\nuser = "bob"\nproducer_byte_rate = 5\n# alice?\n[[quota]]\nuser = "alice"\n'
            "producer_byte_rate = 5\n",
            '[[quota]]\nuser = "bob"\nproducer_byte_rate = 5\n# alice?\n',
            id="the comment between two entries",
        ),
        pytest.param(
            '# the file?\n[[quota]]\nuser = "alice"\nproducer_byte_rate = 5\n',
            "# the file?\n",
            id="the first",
        ),
        pytest.param(
            '[[quota]]\nuser = "alice"\nproducer_byte_rate = 5\n# bob?\n[[quota]]\nuser = "bob"\n'
            "producer_byte_rate = 5\n",
            '# bob?\n[[quota]]\nuser = "bob"\nproducer_byte_rate = 5\n',
            id="the comment before the next",
        ),
        pytest.param(
            '[[quota]]\nuser = "alice"\nproducer_byte_rate = 5\n\n# a chapter\n\n# bob\n[[quota]]\n'
            'user = "bob"\nproducer_byte_rate = 5\n',
            '# a chapter\n\n# bob\n[[quota]]\nuser = "bob"\nproducer_byte_rate = 5\n',
            id="what stands alone",
        ),
    ],
)
def test_deleting_a_quota_keeps_comments_that_may_belong_to_others(text: str, left: str) -> None:
    assert edited(text, {(ALICE, PRODUCE): None}) == left


@pytest.mark.parametrize(
    "text",
    [
        'quota = [{user = "bob", producer_byte_rate = 5}, {user = "eve", producer_byte_rate = 5}]  # few\n',
        'quota = [\n  # few\n  {user = "bob", producer_byte_rate = 5}, # his\n]\n',
        '# few\n[["quo\\u0074a"]]\nuser = "bob" # few\nproducer_byte_rate = 5\n',
        (
            '[[quota]] # few\nuser = """\n# bob\n\n[[quota]]\n"""\nproducer_byte_rate = 5\n\n# what\n'
            "[[quota]] # few\nuser = '''bob'''\nproducer_byte_rate = 5\n"
        ),
    ],
)
def test_quota_files_with_inline_tables_can_be_edited(text: str) -> None:
    edits: list[dict[Quota, float | None]] = [
        {(BOB, FETCH): 7.0},
        {(BOB, PRODUCE): None, (ALICE, FETCH): 1.0},
        {(BOB, PRODUCE): 8.0, (BOB, FETCH): 3.0, (Entity("# bob\n\n[[quota]]\n"), PRODUCE): None},
        {(ALICE, FETCH): 2.0},
    ]
    for changes in edits:
        before, text = text, edited(text, changes)
        assert parse(text) == parse(before).altered(changes)
        assert "# few" in text


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        ("[[quota]]\n", {}, "does not say whom it is for"),
        ("", {(ALICE, PRODUCE): 0.0}, "it must be a whole number"),
        ("", {(ALICE, PRODUCE): float("nan")}, "it must be a whole number"),
        ("", {(Entity(DEFAULT_MARKER), PRODUCE): 5.0}, "cannot be told from the default"),
        ("", {(ALICE, QuotaKey.CONNECTION_CREATION_RATE): 5.0}, "cannot be set for users"),
        (FILE, {(ALICE, PRODUCE): 0.5}, "it must be a whole number"),
        (FILE, {(ALICE, QuotaKey.REQUEST_PERCENTAGE): 1e300}, "it must be a percentage of one thread's time"),
    ],
)
def test_editing_refuses_quotas_that_cannot_be_written(
    text: str, changes: dict[Quota, float | None], message: str
) -> None:
    with pytest.raises(QuotaFileError, match=message):
        edited(text, changes)


# Files as people write them, with comments, blank lines and numbers of all kinds.
comments = st.sampled_from(["", "", "", "  # why", "#", '# "x" [[quota]]', '\t# """', "# '''"])
fillers = st.lists(
    st.sampled_from(["", "", "  ", "# [[quota]]", "# a chapter", "\t# été", "# '''"]), max_size=3
)
headers = st.sampled_from(["[[quota]]", "[[ quota ]]", "  [[quota]]", '[["quota"]]', "[['quota'\t]]"])


@st.composite
def spelled(draw: st.DrawFn, line: str) -> str:
    """A line `key = value`, spelled in one of several ways."""
    key, value = line.split(" = ", 1)
    key = draw(st.sampled_from([key, f'"{key}"', f"'{key}'"]))
    if value.isdigit():
        value = draw(st.sampled_from([value, f"+{value}", f"{int(value):_}", hex(int(value))]))
    elif value.startswith('"'):
        value = draw(st.sampled_from([value, f'""{value}""', f'""{value[0]}\n{value[1:]}""']))
    indent, equals = draw(st.sampled_from(["", "", "  ", "\t"])), draw(st.sampled_from([" = ", "=", "\t= "]))
    return f"{indent}{key}{equals}{value}{draw(comments)}"


@st.composite
def files(draw: st.DrawFn) -> str:
    table = draw(tables)
    entries = entries_of(table)
    lines = draw(fillers)
    for entry in draw(st.permutations(entries)):
        lines.append(draw(headers) + draw(comments))
        _header, *rest = entry_lines(entry)
        for line in draw(st.permutations(rest)):
            lines += [*draw(fillers), draw(spelled(line))]
        lines += draw(fillers)
    text = "\n".join(lines) + draw(st.sampled_from(["\n", "", "\n\n"]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


@given(files(), st.data(), st.booleans())
def test_the_edited_quota_file_parses_to_the_altered_table(
    text: str, data: st.DataObject, shadow: bool
) -> None:
    before = parse(text)
    known = list(before.shadow if shadow else before.values)
    some = st.sampled_from(known) | quotas if known else quotas
    one = some.flatmap(lambda quota: st.tuples(st.just(quota), st.none() | rates(quota[1])))
    changes = data.draw(st.lists(one, max_size=6).map(dict))
    can_have_some = all(has_budgets(entity) for entity, _key in changes)
    said = data.draw(st.none() | options) if can_have_some else None
    after = edited(text, changes, shadow=shadow, options=said)
    assert parse(after) == before.altered(changes, shadow=shadow, options=said)
    assert edited(after, changes, shadow=shadow, options=said) == after
    with patch.object(quota_text, "BLOCK", data.draw(st.integers(1, 3))):
        blocks = in_blocks(text)
        assert str(blocks) == text
        blocks = blocks.edited(changes, shadow=shadow, options=said)
        assert parse(str(blocks)) == parse(after)
        assert str(blocks.edited(changes, shadow=shadow, options=said)) == str(blocks)
        if None not in changes.values():
            assert comment_lines(str(blocks)) == comment_lines(text)
    if None not in changes.values():
        assert comment_lines(after) == comment_lines(text)


def comment_lines(text: str) -> list[str]:
    """The lines that are comments; no string of `files` has such a line."""
    return [line.strip() for line in text.split("\n") if line.lstrip().startswith("#")]


@pytest.mark.slow
@interpreted
def test_few_changes_of_many_entries_leave_all_other_lines_and_cost_the_same_among_more() -> None:
    few, many = (
        QuotaTable({(Entity(f"user {n}"), PRODUCE): float(n + 1) for n in range(number)})
        for number in (1200, 2000)
    )
    text = render(many)
    changes: dict[Quota, float | None] = {
        (Entity("user 1000"), PRODUCE): 7.0,
        (Entity("user 3"), PRODUCE): None,
        (Entity("new"), PRODUCE): 5.0,
    }
    edit = [partial(in_blocks(render(table)).edited, changes) for table in (few, many)]
    assert str(edit[1]()) == edited(text, changes)  # and fills caches, such as that of regular expressions
    assert steps(edit[0]) == steps(edit[1])
    del changes[Entity("new"), PRODUCE]
    changed = edited(text, changes)
    gone = text.replace('[[quota]]\nuser = "user 3"\nproducer_byte_rate = 4\n\n', "")
    assert changed == gone.replace("producer_byte_rate = 1001\n", "producer_byte_rate = 7\n")
