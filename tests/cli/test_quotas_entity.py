"""Entities and values on the command line of `weir quotas`."""

from __future__ import annotations

import click
import pytest

from weir.cli.quotas.entity import entity_options, parse_assignments
from weir.quotas import DEFAULT, Entity, Prefix


def parsed(*arguments: str) -> Entity:
    """The entity that these options name. Raises click.UsageError."""
    got: list[Entity] = []

    @click.command()
    @entity_options
    def command(entity: Entity) -> None:
        got.append(entity)

    command.main(list(arguments), standalone_mode=False)
    return got[0]


@pytest.mark.parametrize(
    ("arguments", "entity"),
    [
        ("--user alice", Entity("alice")),
        ("--user <default>", Entity(DEFAULT)),
        ("--client-id app", Entity(client_id="app")),
        ("--client-id <default>", Entity(client_id=DEFAULT)),
        ("--user alice --client-id app", Entity("alice", "app")),
        ("--user alice --client-id <default>", Entity("alice", DEFAULT)),
        ("--user <default> --client-id <default>", Entity(DEFAULT, DEFAULT)),
        ("--client-id-prefix etl-", Entity(client_id=Prefix("etl-"))),
        ("--user alice --client-id-prefix etl-", Entity("alice", Prefix("etl-"))),
        ("--ip 10.0.0.1", Entity(ip="10.0.0.1")),
        ("--ip 2001:DB8:0::1", Entity(ip="2001:db8::1")),
        ("--ip <default>", Entity(ip=DEFAULT)),
        ("--topic logs", Entity(topic="logs")),
        ("--topic-prefix pay.", Entity(topic_prefix="pay.")),
    ],
)
def test_options_name_every_kind_of_entity(arguments: str, entity: Entity) -> None:
    assert parsed(*arguments.split()) == entity


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "an entity needs a user, a client-id, or both"),
        ("--client-id a --client-id-prefix b", "one of --client-id and --client-id-prefix at a time"),
        ("--ip 10.0.0.1 --user a", "stand alone"),
        ("--topic a --ip 10.0.0.1", "stand alone"),
        ("--ip host", "--ip is 'host', must be an IPv4 or IPv6 address"),
        ("--user=", "must not be empty"),
    ],
)
def test_options_for_impossible_entities_are_refused(arguments: str, words: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        parsed(*arguments.split())
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("producer_byte_rate", "must be KEY=VALUE, such as producer_byte_rate=1048576"),
        ("producer_byte_rat=1", "unknown key 'producer_byte_rat'; did you mean producer_byte_rate?"),
        ("zzz=1", "unknown key 'zzz'; known: producer_byte_rate"),
        ("producer_byte_rate=", "producer_byte_rate is '', must be a number of bytes, such as 1048576"),
        ("producer_byte_rate=1e6", "is '1e6', must be a number"),
        ("request_percentage=50%", "request_percentage is '50%', must be a plain number"),
    ],
)
def test_invalid_quota_assignments_are_refused(written: str, words: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        parse_assignments([written])
    assert words in refused.value.message
