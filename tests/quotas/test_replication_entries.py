"""Replication throttles in the quota table and in the quota file: read, refused, written, edited."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.strategies import tables
from tests.quotas.throttle_strategies import changes_of, throttles
from weir.quotas import Entity, QuotaFileError, QuotaKey, QuotaTable, parse, render
from weir.quotas.replication.throttles import NO_THROTTLES, ConfigKey, ReplicationThrottles, ResourceType
from weir.quotas.table.quota_check import check
from weir.quotas.table.replication_edit import edited_replication

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_LIST, FOLLOWER_LIST = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
ALICE = Entity("alice")
LARGEST = 9223372036854775807


def of_broker(name: str, key: str = LEADER_RATE) -> ConfigKey:
    return ConfigKey(ResourceType.BROKER, name, key)


def of_topic(name: str, key: str = LEADER_LIST) -> ConfigKey:
    return ConfigKey(ResourceType.TOPIC, name, key)


ONE = ReplicationThrottles({of_broker("1"): "1000"})


def test_tables_with_other_throttles_are_not_equal() -> None:
    table = QuotaTable(replication=ONE)
    same = QuotaTable().replication_altered({of_broker("1"): "1000"})
    assert table == same
    assert hash(table) == hash(same)
    assert table != QuotaTable()
    assert len(table) == 1
    assert "1000" in repr(table)
    assert "replication" not in repr(QuotaTable())


# Reading


def test_throttles_of_brokers_and_topics_are_parsed() -> None:
    text = """
[[replication]]
broker = 1
leader.replication.throttled.rate = "10MB"
"follower.replication.throttled.rate" = 0

[[quota]]
user = "alice"
producer_byte_rate = 5

[[replication]]
broker = "<default>"
leader.replication.throttled.rate = 1_000
[[replication]]
topic = "orders"
[replication.leader.replication.throttled]
replicas = "0:1,1:2"
[[replication]]
topic = "all"
leader = {replication.throttled.replicas = "*"}
follower.replication.throttled.replicas = ""
"""
    assert parse(text) == QuotaTable(
        {(ALICE, PRODUCE): 5.0},
        replication=ReplicationThrottles(
            {
                of_broker("1"): "10000000",
                of_broker("1", FOLLOWER_RATE): "0",
                of_broker(""): "1000",
                of_topic("orders"): "0:1,1:2",
                of_topic("all"): "*",
                of_topic("all", FOLLOWER_LIST): "",
            }
        ),
    )


@pytest.mark.parametrize(
    ("written", "rate"),
    [
        ("0", "0"),
        ('"1KiB"', "1024"),
        ('"1.5K"', "1500"),
        ("2e3", "2000"),
        ('"25"', "25"),
        (str(LARGEST),) * 2,
        ('"unlimited"', str(LARGEST)),
    ],
)
def test_a_throttled_rate_may_be_zero_and_may_have_a_unit(written: str, rate: str) -> None:
    table = parse(f"[[replication]]\nbroker = 0\n{LEADER_RATE} = {written}\n")
    assert dict(table.replication.values) == {of_broker("0"): rate}


B1 = "[[replication]]\nbroker = 1\n"
T = '[[replication]]\ntopic = "t"\n'
RATE = f"{LEADER_RATE} = 5\n"
LIST = f'{LEADER_LIST} = "*"\n'
BYTES = "a number of bytes, such as 1048576, 1MB (10^6) or 256KiB (2^10)"
FORM = 'must be PARTITION:BROKER[,PARTITION:BROKER...], "*" or "none"'
RATES, LISTS = f"{LEADER_RATE} or {FOLLOWER_RATE}", f"{LEADER_LIST} or {FOLLOWER_LIST}"
KNOWN = f"broker, topic, {LEADER_RATE}, {FOLLOWER_RATE}, {LEADER_LIST}, {FOLLOWER_LIST}"
REFUSED = [
    # The text, the line in its first entry of replication, and the reason.
    (
        f"{B1}leader.replication.throttled.rat = 5\n",
        3,
        f'unknown key "leader.replication.throttled.rat"; did you mean {LEADER_RATE}?',
    ),
    (f"[[replication]]\nbrokers = 1\n{RATE}", 2, 'unknown key "brokers"; did you mean broker?'),
    (f"{B1}zzz = 1\n", 3, f'unknown key "zzz"; known: {KNOWN}'),
    (f"{B1}{RATE}zzz = {{}}\n", 4, f'unknown key "zzz"; known: {KNOWN}'),
    (f'{B1}{RATE}"{LEADER_RATE}" = 6\n', 3, f"{LEADER_RATE} is set twice; remove one"),
    (f"{B1}{LIST}", 3, f"{LEADER_LIST} cannot be set for a broker; use {RATES}"),
    (f"{T}{RATE}", 3, f"{LEADER_RATE} cannot be set for a topic; use {LISTS}"),
    (B1, 1, f"sets no throttle; add {RATES}"),
    (T, 1, f"sets no throttle; add {LISTS}"),
    (
        f"[[replication]]\n{RATE}",
        1,
        'does not say whom it is for; add broker (a node id, or "<default>") or topic',
    ),
    (f'{B1}topic = "t"\n{RATE}', 3, "broker and topic exclude each other; write two entries"),
    *(
        (
            f"[[replication]]\nbroker = {broker}\n{RATE}",
            2,
            f'broker must be a node id such as 1, or "<default>", not {broker}',
        )
        for broker in ("-1", "true", "1.5", '"1"', '""', "2147483648")
    ),
    (f"[[replication]]\ntopic = 7\n{LIST}", 2, "topic must be a string, not 7; put it in quotes"),
    (f'[[replication]]\ntopic = ""\n{LIST}', 2, "topic is empty; give one"),
    (
        f'[[replication]]\ntopic = "<default>"\n{LIST}',
        2,
        "topic has no default; write an entry for each topic",
    ),
    (f'{B1}{LEADER_RATE} = "5 apples"\n', 3, f'{LEADER_RATE} must be {BYTES}, not "5 apples"'),
    *(
        (f"{B1}{LEADER_RATE} = {rate}\n", 3, f"{LEADER_RATE} must be a whole number of bytes/s, not {rate}")
        for rate in ("1.5", "nan", "inf", "true", '"1.5"')
    ),
    (
        f"{B1}{LEADER_RATE} = -1\n",
        3,
        f"{LEADER_RATE} must be at least 0, not -1; remove it to lift the limit",
    ),
    (
        f"{B1}{LEADER_RATE} = {LARGEST + 1}\n",
        3,
        f"{LEADER_RATE} must be at most {LARGEST}, not {LARGEST + 1}; remove it to lift the limit",
    ),
    (f"{T}{LEADER_LIST} = 5\n", 3, f"{LEADER_LIST} must be a string, not 5; put it in quotes"),
    (f'{T}{LEADER_LIST} = "0-1"\n', 3, f'{LEADER_LIST} {FORM}, not "0-1"'),
]


@pytest.mark.parametrize(("text", "line", "reason"), REFUSED)
@pytest.mark.parametrize("before", ["", '[[quota]]\nuser = "a"\nproducer_byte_rate = 5\n'], ids=["", "quota"])
def test_a_refused_throttle_is_told_with_its_line_and_the_remedy(
    text: str, line: int, reason: str, before: str
) -> None:
    with pytest.raises(QuotaFileError) as refused:
        parse(before + text)
    line += before.count("\n")
    assert str(refused.value) == f"[[replication]] entry 1 (line {line}): {reason}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            B1 + RATE + T + LIST + B1 + RATE,
            (
                "[[replication]] entry 3 (line 7): broker 1 has an entry already, "
                "[[replication]] entry 1 (line 1); merge the two"
            ),
        ),
        (
            "[replication]\nbroker = 1\n",
            "'replication' is not a list of tables; begin each entry with [[replication]]",
        ),
        (
            "[[replications]]\nbroker = 1\n",
            'unknown key "replications"; begin each throttle with [[replication]]',
        ),
        ("replication = [{broker = 1}]\n", f"[[replication]] entry 1: sets no throttle; add {RATES}"),
        (f"{B1}{'a.' * 3000}b = 1\n", None),
    ],
)
def test_errors_of_throttles_name_the_place_and_the_remedy(text: str, message: str | None) -> None:
    with pytest.raises(QuotaFileError) as refused:
        parse(text)
    assert "\n" not in str(refused.value)
    assert message in (None, str(refused.value))


def test_check_finds_the_mistakes_of_quotas_and_throttles_at_once() -> None:
    text = f'{T}{RATE}\n[[quota]]\nuser = "a"\n\n{B1}\n[[replication]]\ntopic = "a*"\n{LIST}'
    found = check(text)
    assert [mistake.partition(": ")[0] for mistake in found.mistakes] == [
        "[[quota]] entry 1 (line 5)",
        "[[replication]] entry 1 (line 3)",
        "[[replication]] entry 2 (line 8)",
    ]
    assert found.warnings == [
        '[[replication]] entry 3 (line 11): no topic is called "a*"; write an entry for each topic'
    ]


# Writing


@given(tables, throttles)
def test_a_rendered_table_with_throttles_parses_to_itself(
    table: QuotaTable, said: ReplicationThrottles
) -> None:
    whole = table.replication_altered(dict(said.values))
    assert parse(render(whole)) == whole


# Editing

FILE = """\
# Ours.
[[quota]]
user = "alice"
producer_byte_rate = 5
# end of alice

# for the move of June
[[replication]]   # INC-4711
broker = 1
leader.replication.throttled.rate = "10MB"  # for now
"follower.replication.throttled.rate"=5

# Everybody else
[[ replication ]]
topic = 'orders'
  leader.replication.throttled.replicas = '0:1'   # one of them

[[quota]]
user = "bob"
producer_byte_rate = 5
"""


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["unix", "dos"])
@pytest.mark.parametrize(
    ("changes", "before", "after"),
    [
        pytest.param({}, "", "", id="nothing"),
        pytest.param({of_broker("1"): "10000000", of_broker("2"): None}, "", "", id="the same values"),
        pytest.param({of_broker("1"): "7"}, '"10MB"', "7", id="another rate"),
        pytest.param({of_topic("orders"): "0:1,1:2"}, "'0:1'", '"0:1,1:2"', id="another list"),
        pytest.param(
            {of_broker("1", FOLLOWER_RATE): None}, '"follower.replication.throttled.rate"=5\n', "", id="less"
        ),
        pytest.param(
            {of_topic("orders", FOLLOWER_LIST): "*"},
            "# one of them\n",
            '# one of them\nfollower.replication.throttled.replicas = "*"\n',
            id="more",
        ),
        pytest.param(
            {of_topic("orders"): None},
            FILE[FILE.index("# Everybody") : FILE.index('[[quota]]\nuser = "bob"')],
            "",
            id="an entry less, with its comment",
        ),
        pytest.param(
            {of_broker(""): "0"},
            'user = "bob"\nproducer_byte_rate = 5\n',
            'user = "bob"\nproducer_byte_rate = 5\n\n[[replication]]\nbroker = "<default>"\n'
            "leader.replication.throttled.rate = 0\n",
            id="a new entry",
        ),
    ],
)
def test_editing_throttles_leaves_all_other_text_unchanged(
    changes: dict[ConfigKey, str | None], before: str, after: str, ending: str
) -> None:
    text, wanted = (one.replace("\n", ending) for one in (FILE, FILE.replace(before, after)))
    assert edited_replication(text, changes) == wanted
    assert parse(wanted) == parse(text).replication_altered(changes)


@pytest.mark.parametrize(
    "text",
    [
        "replication = [{broker = 1, leader.replication.throttled.rate = 5}]\n",
        "replication = []\n",
        "[[replication]]\nbroker = 1\n[replication.leader]\nreplication.throttled.rate = 5\n",
        "[[replication]]\nbroker = 1\nleader.replication = {throttled.rate = 5}\n",
        '[["replic\\u0061tion"]]\nbroker = 1\nleader.replication.throttled.rate = 5\n',
    ],
)
def test_throttles_in_a_rare_spelling_are_not_edited_but_refused(text: str) -> None:
    assert parse(text).replication in (NO_THROTTLES, ReplicationThrottles({of_broker("1"): "5"}))
    with pytest.raises(QuotaFileError, match=r"give each entry of replication a \[\[replication\]\] line"):
        edited_replication(text, {of_broker("1"): "6"})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({of_broker("x"): "5"}, "no node id"),
        ({of_broker("1"): "fast"}, "a number of bytes"),
        ({of_topic("t"): "0-1"}, "PARTITION:BROKER"),
        ({of_topic("t", LEADER_RATE): "5"}, "cannot be set for a topic"),
        ({of_broker("1", LEADER_LIST): "*"}, "cannot be set for a broker"),
    ],
)
def test_editing_refuses_throttles_that_cannot_be_written(
    changes: dict[ConfigKey, str | None], words: str
) -> None:
    with pytest.raises(QuotaFileError, match=words):
        edited_replication("", changes)
    if of_broker("1") in changes:
        with pytest.raises(QuotaFileError, match=words):
            edited_replication(FILE, changes)


@given(tables, throttles, st.data())
def test_the_edited_quota_file_parses_to_the_altered_throttles(
    table: QuotaTable, said: ReplicationThrottles, data: st.DataObject
) -> None:
    before = table.replication_altered(dict(said.values))
    changes = data.draw(changes_of(said))
    text = edited_replication(render(before), changes)
    assert parse(text) == before.replication_altered(changes)
    assert edited_replication(text, changes) == text
