"""The quota file: what is read, what is refused and in which words, and that it can be written back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.strategies import tables
from weir.quotas import DEFAULT, Entity, Prefix, QuotaFileError, QuotaKey, QuotaTable, parse, render

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
MUTATIONS, REQUESTS = QuotaKey.CONTROLLER_MUTATION_RATE, QuotaKey.REQUEST_PERCENTAGE
KNOWN = (
    "user, client_id, client_id_prefix, ip, topic, topic_prefix, group, mode, pacing, scope, until, "
    "producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, "
    "producer_byte_floor, consumer_byte_floor, old_read_byte_rate, connection_creation_rate, "
    "topics_max, partitions_max, stored_bytes_max, usable_bytes_min, over_byte_rate"
)
TOPIC_KEYS = (
    "producer_byte_rate or consumer_byte_rate or stored_bytes_max or usable_bytes_min or over_byte_rate"
)
CONNECTIONS = QuotaKey.CONNECTION_CREATION_RATE
ANY_KEY = (
    "producer_byte_rate or consumer_byte_rate or request_percentage or controller_mutation_rate or "
    "producer_byte_floor or consumer_byte_floor or old_read_byte_rate"
)


ALL_LEVELS = [
    Entity(user, client_id)
    for user in ("alice", DEFAULT, None)
    for client_id in ("app", DEFAULT, None)
    if user or client_id
]
PREFIXES = [Entity(user, Prefix("etl-")) for user in ("alice", DEFAULT, None)]


def header(entity: Entity) -> str:
    key = "client_id_prefix" if isinstance(entity.client_id, Prefix) else "client_id"
    client_id = entity.client_id.start if isinstance(entity.client_id, Prefix) else entity.client_id
    names = "".join(
        f'{part} = "{"<default>" if name is DEFAULT else name}"\n'
        for part, name in (("user", entity.user), (key, client_id))
        if name is not None
    )
    return f"[[quota]]\n{names}"


@pytest.mark.parametrize("key", [MUTATIONS, REQUESTS])
@pytest.mark.parametrize("entity", [*ALL_LEVELS, *PREFIXES], ids=str)
@pytest.mark.parametrize(("written", "rate"), [("5", 5.0), ("0.5", 0.5), ("1e-3", 0.001), ("2.0", 2.0)])
def test_mutation_rates_and_percentages_may_have_fractions_at_every_level(
    key: QuotaKey, entity: Entity, written: str, rate: float
) -> None:
    text = f"{header(entity)}{key.value} = {written}\n"
    assert parse(text) == QuotaTable({(entity, key): rate})
    assert parse(f'{text}mode = "shadow"\n') == QuotaTable(None, {(entity, key): rate})


def test_entries_for_addresses_prefixes_topics_and_shadow_are_parsed() -> None:
    text = """
[[quota]]
ip = "2001:0DB8::0:1"
connection_creation_rate = 5
[[quota]]
ip = "<default>"
connection_creation_rate = 2147483647
[[quota]]
client_id_prefix = "etl-"
consumer_byte_rate = 3
[[quota]]
client_id_prefix = "etl-"
user = "alice"
controller_mutation_rate = 0.000001
[[quota]]
user = "<default>"
client_id_prefix = "*"
mode = "enforce"
producer_byte_rate = 4
[[quota]]
topic = "orders"
producer_byte_rate = 6
consumer_byte_rate = 7
[[quota]]
topic = "orders"
mode = "shadow"
producer_byte_rate = 8
"""
    assert parse(text) == QuotaTable(
        {
            (Entity(ip="2001:db8::1"), CONNECTIONS): 5.0,
            (Entity(ip=DEFAULT), CONNECTIONS): 2147483647.0,
            (Entity(client_id=Prefix("etl-")), FETCH): 3.0,
            (Entity("alice", Prefix("etl-")), MUTATIONS): 1e-6,
            (Entity(DEFAULT, Prefix("*")), PRODUCE): 4.0,
            (Entity(topic="orders"), PRODUCE): 6.0,
            (Entity(topic="orders"), FETCH): 7.0,
        },
        shadow={(Entity(topic="orders"), PRODUCE): 8.0},
    )


A = '[[quota]]\nuser = "a"\n'
B = '\n[[quota]]\nuser = "b"\n'
IP = '[[quota]]\nip = "10.0.0.1"\n'

ABOVE_0 = "above 0, not {}; remove it to lift the limit"
INT64 = "at most 9223372036854775807, not {}; remove it to lift the limit"
REFUSED_VALUES: list[tuple[str, str, list[str]]] = [
    # The key, which values it refuses, and how they are written.
    ("producer_byte_rate", ABOVE_0, ["0", "-1"]),
    ("producer_byte_rate", "a whole number of bytes/s, not {}", ["1.5", "inf", "nan", "true"]),
    ("producer_byte_rate", INT64, ["9223372036854775808"]),
    ("controller_mutation_rate", "a number of partitions/s, not {}", ["nan", "true", '"5/s"']),
    ("controller_mutation_rate", ABOVE_0, ["0", "-0.5", "-inf"]),
    ("controller_mutation_rate", INT64, ["inf", "1e+300"]),
    (
        "controller_mutation_rate",
        "at least 0.000001, not {}; remove it to lift the limit",
        ["9.9e-07", "1e-320"],
    ),
    ("request_percentage", ABOVE_0, ["0", "-0.5"]),
    ("request_percentage", INT64, ["inf", "1e+300"]),
    ("request_percentage", "a percentage of one thread's time, not {}", ["nan", '"50%"', "true"]),
    ("connection_creation_rate", "a whole number of connections/s, not {}", ["0.5"]),
    ("connection_creation_rate", ABOVE_0, ["0"]),
    ("connection_creation_rate", "at most 2147483647, not {}; remove it to lift the limit", ["2147483648"]),
]


@pytest.mark.parametrize(
    ("key", "allowed", "written"),
    [(key, allowed, value) for key, allowed, values in REFUSED_VALUES for value in values],
)
def test_a_refused_value_in_a_quota_file_is_told_with_its_line_and_what_is_allowed(
    key: str, allowed: str, written: str
) -> None:
    whose = IP if key == "connection_creation_rate" else A
    with pytest.raises(QuotaFileError) as refused:
        parse(f"{whose}{key} = {written}\n")
    assert str(refused.value) == f"[[quota]] entry 1 (line 3): {key} must be {allowed.format(written)}"


RATE = "producer_byte_rate = 5\n"
PREFIX = "client_id_prefix"
CONNECTION_RATE = "connection_creation_rate = 5\n"
UNTIL = "until must be a time with its zone, such as 2026-12-01T06:00:00Z"
HAS_ONE = "has an entry already, [[quota]] entry 1 (line 1); merge the two"
CLIENT_KEYS = ("producer_byte_rate", "controller_mutation_rate", "request_percentage")
REFUSED_ENTRIES = [
    # The text, the line in its first entry, and the reason.
    (f"{A}producer_byte_rat = 5\n", 3, 'unknown key "producer_byte_rat"; did you mean producer_byte_rate?'),
    (f'[[quota]]\nclient-id = "a"\n{RATE}', 2, 'unknown key "client-id"; did you mean client_id?'),
    (f"{A}zzz = 5\n", 3, f'unknown key "zzz"; known: {KNOWN}'),
    (
        f'{A}{RATE}pacing = "even"\n',
        4,
        'pacing must be "kafka" or "smooth", not "even"; leave it out for the configured one',
    ),
    (
        f"{A}{RATE}scope = 2\n",
        4,
        'scope must be "broker" or "cluster", not 2; leave it out for a budget at each broker',
    ),
    *(
        (f"{A}{RATE}until = {written}\n", 4, f"{UNTIL}, not {shown}")
        for written, shown in (
            ("2026-12-01T06:00:00", "2026-12-01 06:00:00"),
            ("0001-01-01T00:00:00+01:00", "0001-01-01 00:00:00+01:00"),
            ('"2026-12-01T06:00:00Z"', '"2026-12-01T06:00:00Z"; leave out the quotes'),
        )
    ),
    (f'{IP}{CONNECTION_RATE}pacing = "smooth"\n', 4, "pacing cannot be set for an ip; remove it"),
    (
        f"[[quota]]\n{RATE}",
        1,
        (
            "does not say whom it is for; add user, client_id or client_id_prefix, or user and one of "
            'these, or ip, topic, topic_prefix or group ("<default>" means the default)'
        ),
    ),
    (A, 1, f"sets no quota; add {ANY_KEY}"),
    (f'[[quota]]\nuser = ""\n{RATE}', 2, 'user is empty; give a name, "<default>", or leave user out'),
    (f'{A}client_id = ""\n{RATE}', 3, 'client_id is empty; give a name, "<default>", or leave client_id out'),
    (f"[[quota]]\nuser = 7\n{RATE}", 2, "user must be a string, not 7; put it in quotes"),
    (
        f"{A}{CONNECTION_RATE}",
        3,
        f"connection_creation_rate cannot be set for users and client-ids; use {ANY_KEY}",
    ),
    *(
        (
            f"{A}mode = {mode}\n{RATE}",
            3,
            f'mode must be "enforce" or "shadow", not {mode}; leave it out to enforce',
        )
        for mode in ('"off"', "true", '""')
    ),
    *(
        (f"{IP}{key} = 5\n", 3, f"{key} cannot be set for an ip; use connection_creation_rate")
        for key in CLIENT_KEYS
    ),
    *(
        (f'[[quota]]\n{key} = 5\ntopic = "o"\n', 2, f"{key} cannot be set for a topic; use {TOPIC_KEYS}")
        for key in ("connection_creation_rate", *CLIENT_KEYS[1:])
    ),
    *(
        (
            f'[[quota]]\nip = "{address}"\n{CONNECTION_RATE}',
            2,
            (
                f'ip must be an IPv4 or IPv6 address or "<default>", not "{address}"; '
                "write a host's address, not its name"
            ),
        )
        for address in ("localhost", "10.0.0", "010.0.0.1", "10.0.0.0/8", "[::1]", "::1 ")
    ),
    *(
        (f'{A}{key} = "::1"\n{RATE}', 3, f"{key} stands alone; write an entry of its own for user")
        for key in ("ip", "topic")
    ),
    (f'{IP}topic = "orders"\n{RATE}', 2, "ip stands alone; write an entry of its own for topic"),
    (
        f'[[quota]]\nclient_id = "a"\nclient_id_prefix = "a"\n{RATE}',
        2,
        "client_id and client_id_prefix exclude each other; write two entries",
    ),
    (f'[[quota]]\n{PREFIX} = ""\n{RATE}', 2, f"{PREFIX} is empty; give one, or leave {PREFIX} out"),
    (
        f'[[quota]]\n{PREFIX} = "<default>"\n{RATE}',
        2,
        f'{PREFIX} has no default; write client_id = "<default>"',
    ),
    (f'[[quota]]\ntopic = "<default>"\n{RATE}', 2, "topic has no default; write an entry for each topic"),
    # A dotted key is found, too.
    (
        f"{A}producer_byte_rate.x = 5\n",
        3,
        "producer_byte_rate must be a whole number of bytes/s, not {'x': 5}",
    ),
]


@pytest.mark.parametrize(("text", "line", "reason"), REFUSED_ENTRIES)
def test_a_refused_entry_of_a_quota_file_is_told_with_its_line_and_the_remedy(
    text: str, line: int, reason: str
) -> None:
    with pytest.raises(QuotaFileError) as refused:
        parse(text)
    assert str(refused.value) == f"[[quota]] entry 1 (line {line}): {reason}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[quotas]]\nuser = "a"\n', 'unknown key "quotas"; begin each quota with [[quota]]'),
        *(
            (text, "'quota' is not a list of tables; begin each entry with [[quota]]")
            for text in ('[quota]\nuser = "a"\n', "quota = [1, 2]\n")
        ),
        (
            f"{A}{RATE}{B}consumer_byte_rate = -1\n",
            f"[[quota]] entry 2 (line 7): consumer_byte_rate must be {ABOVE_0.format(-1)}",
        ),
        (f"{A}{RATE}{B}{RATE}{A}consumer_byte_rate = 5\n", f"[[quota]] entry 3 (line 8): user a {HAS_ONE}"),
        (
            f"{IP.replace('10.', '::FFFF:10.')}{CONNECTION_RATE}{IP}{CONNECTION_RATE}",
            f"[[quota]] entry 2 (line 4): ip 10.0.0.1 {HAS_ONE}",
        ),
        (2 * f'{A}mode = "shadow"\n{RATE}', f"[[quota]] entry 2 (line 5): user a, in shadow {HAS_ONE}"),
        (f'{A}mode = "enforce"\n{RATE}{A}{RATE}', f"[[quota]] entry 2 (line 5): user a {HAS_ONE}"),
        # Entries in one line have numbers only.
        (
            'quota = [{user = "a", producer_byte_rate = 5}, {user = "b"}]\n',
            f"[[quota]] entry 2: sets no quota; add {ANY_KEY}",
        ),
        # A header within a string misleads nobody.
        (
            '[[quota]]\nuser = """\n[[quota]]\n"""\nproducer_byte_rate = 0\n',
            f"[[quota]] entry 1: producer_byte_rate must be {ABOVE_0.format(0)}",
        ),
    ],
)
def test_quota_file_errors_name_the_place_and_the_remedy(text: str, message: str) -> None:
    with pytest.raises(QuotaFileError) as refused:
        parse(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[[quota]]\nuser = alice\n", "line 2, column 8"),
        ('[[quota]]\nuser = "alice', "line 2"),
        ('[[quota]]\nuser = "a"\nuser = "b"\n', "line 3"),
        ("[[quota]", "line 1"),
        (f"{A}producer_byte_rate = {'9' * 5000}\n", ""),
        (f"quota = {'[' * 5000}", ""),
    ],
)
def test_malformed_toml_is_refused_with_its_line(text: str, place: str) -> None:
    with pytest.raises(QuotaFileError, match=r"^not valid TOML: .*; correct this place$") as refused:
        parse(text)
    assert place in str(refused.value)


def outcome(text: str) -> QuotaTable | str:
    try:
        return parse(text)
    except QuotaFileError as error:
        return str(error)


@given(st.text(alphabet='[]quota="\n 5_.#\\{}', max_size=60))
def test_parsing_any_text_gives_a_quota_table_or_a_one_line_error(text: str) -> None:
    answer = outcome(text)
    assert isinstance(answer, QuotaTable) or len(answer.splitlines()) == 1


@given(tables)
def test_a_rendered_quota_table_parses_to_itself(table: QuotaTable) -> None:
    text = render(table)
    assert parse(text) == table
    assert parse(render(parse(text))) == table
    in_shadow = QuotaTable(None, table.shadow, None, table.options(shadow=True))
    assert not table.shadow or text.endswith(render(in_shadow))


@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    [
        (Entity("a"), MUTATIONS, 1e-320, "it must be a number of partitions/s from 0.000001 to"),
        (Entity("a"), CONNECTIONS, 5.0, "connection_creation_rate cannot be set for users and client-ids"),
        (Entity(ip="::1"), PRODUCE, 5.0, r"producer_byte_rate cannot be set for an ip \(ip ::1\); remove it"),
        (Entity(ip="::1"), CONNECTIONS, 2.0**31, "whole number of connections/s from 1 to 2147483647"),
        (Entity(ip="::FFFF:10.0.0.1"), CONNECTIONS, 5.0, "is not an address as it is usually written"),
        (Entity(ip="localhost"), CONNECTIONS, 5.0, "is not an address as it is usually written"),
        (Entity(topic="orders"), MUTATIONS, 5.0, "cannot be set for a topic"),
        (Entity(topic="<default>"), PRODUCE, 5.0, "cannot be told from the default"),
        (Entity(client_id=Prefix("<default>")), PRODUCE, 5.0, "cannot be told from the default"),
        (Entity("<default>"), PRODUCE, 5.0, "cannot be told from the default"),
        (Entity("\ud800"), PRODUCE, 5.0, "is not valid Unicode"),
        (Entity("a"), PRODUCE, 1.5, "producer_byte_rate of user a is 1.5; it must be a whole number"),
        (Entity("a"), PRODUCE, 1e300, "a whole number of bytes/s from 1 to"),
        (Entity("a"), MUTATIONS, 1e300, "is 1e\\+300; it must be a number of partitions/s from"),
        (Entity("a"), REQUESTS, 1e300, "is 1e\\+300; it must be a percentage of one thread's time from"),
    ],
)
def test_rendering_refuses_quotas_that_the_file_format_cannot_hold(
    entity: Entity, key: QuotaKey, value: float, message: str
) -> None:
    with pytest.raises(QuotaFileError, match=message):
        render(QuotaTable({(entity, key): value}))
    with pytest.raises(QuotaFileError, match=message):
        render(QuotaTable(None, {(entity, key): value}))
