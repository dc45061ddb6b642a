"""Filters and alterations that Weir and Kafka must answer alike, each with the expected answer."""

from __future__ import annotations

import math
from typing import Final

from tests.proxy.client_quotas import INVALID, ON_THE_WIRE, UNSUPPORTED, Parts, component, describe

ANY = 2
FILTERS: Final = {
    "everything": (describe(), ON_THE_WIRE),
    "nothing": (describe(strict=True), 0),
    "a user, alone or with client-ids": (describe(component("user", 0, "alice")), 3),
    "a user alone": (describe(component("user", 0, "alice"), strict=True), 1),
    "the default user, alone or not": (describe(component("user", 1)), 2),
    "the default user alone": (describe(component("user", 1), strict=True), 1),
    "any user": (describe(component("user", ANY)), 5),
    "any user alone": (describe(component("user", ANY), strict=True), 2),
    "any client-id alone": (describe(component("client-id", ANY), strict=True), 2),
    "any client-id of alice": (
        describe(component("user", 0, "alice"), component("client-id", ANY), strict=True),
        2,
    ),
    "the default client-id of any user": (describe(component("user", ANY), component("client-id", 1)), 2),
    "both defaults": (describe(component("user", 1), component("client-id", 1)), 1),
    "an unknown user": (describe(component("user", 0, "bob")), 0),
    "a user called like the default": (describe(component("user", 0, "<default>")), 0),
    "the empty name": (describe(component("user", 0, "")), 0),
    "an ip": (describe(component("ip", 0, "10.0.0.1"), strict=True), 1),
    "any ip": (describe(component("ip", ANY), strict=True), 2),
    "the default ip": (describe(component("ip", 1)), 1),
}
BAD_FILTERS: Final = [
    (describe(component("", 2)), INVALID, "Invalid empty entity type."),
    (
        describe(component("user", 2), component("user", 1)),
        INVALID,
        "Entity type user cannot appear more than once in the filter.",
    ),
    (describe(component("group", 2)), UNSUPPORTED, "Unsupported entity type group"),
    (
        describe(component("user", 0)),
        INVALID,
        "Request specified MATCH_TYPE_EXACT, but set match string to null.",
    ),
    (
        describe(component("user", 1, "a")),
        INVALID,
        "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
    ),
    (
        describe(component("user", 2, "a")),
        INVALID,
        "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
    ),
    (describe(component("user", 3)), INVALID, "Unknown match type 3"),
    (describe(component("user", -1)), INVALID, "Unknown match type -1"),
    (
        describe(component("client-id", 1), component("ip", 2)),
        INVALID,
        (
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        ),
    ),
]
BAD_ENTRIES: Final[list[tuple[Parts, dict[str, float | None], str]]] = [
    ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
    ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
    ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
    (
        {"user": "a"},
        {"controller_mutation_rate": 1e-320},
        "Proposed value for controller_mutation_rate is too small for Weir, the least is 0.000001.",
    ),
    ({"client-id": ""}, {"producer_byte_rate": 1.0}, "Empty client-id not supported"),
    ({"ip": ""}, {"connection_creation_rate": 1.0}, "Empty ip not supported"),
    (
        {"ip": "10.0.0.1", "user": "alice"},
        {"connection_creation_rate": 1.0},
        "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
    ),
    (
        {"ip": "no such host"},
        {"connection_creation_rate": 1.0},
        "no such host is not a valid IP or resolvable host.",
    ),
    ({"user": "a"}, {"bogus": 1.0}, "Invalid configuration key bogus"),
    ({"user": "a"}, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
    ({"ip": None}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
    ({"user": "a"}, {"producer_byte_rate": -1.0}, "Quota producer_byte_rate must be greater than 0"),
    (
        {"user": "a"},
        {"controller_mutation_rate": 0.0},
        "Quota controller_mutation_rate must be greater than 0",
    ),
    ({"user": "a"}, {"request_percentage": 0.0}, "Quota request_percentage must be greater than 0"),
    ({"user": "a"}, {"request_percentage": -math.inf}, "Quota request_percentage must be greater than 0"),
    ({"ip": None}, {"request_percentage": 50.0}, "Invalid configuration key request_percentage"),
    ({"user": "a"}, {"consumer_byte_rate": 1.5}, "consumer_byte_rate cannot be a fractional value."),
    (
        {"user": "a"},
        {"consumer_byte_rate": 1e19},
        "Proposed value for consumer_byte_rate is too large for a LONG.",
    ),
    (
        {"user": "a"},
        {"producer_byte_rate": math.inf},
        "Proposed value for producer_byte_rate is too large for a LONG.",
    ),
    (
        {"ip": None},
        {"connection_creation_rate": 2.0**31},
        "Proposed value for connection_creation_rate is too large for an INT.",
    ),
    # Weir's own
    ({"user": "a"}, {"producer_byte_rate": math.nan}, "producer_byte_rate is not a number"),
    (
        {"user": "a"},
        {"controller_mutation_rate": math.inf},
        "Proposed value for controller_mutation_rate is too large for Weir's quota file.",
    ),
    (
        {"user": "a"},
        {"request_percentage": math.inf},
        "Proposed value for request_percentage is too large for Weir's quota file.",
    ),
    ({"user": "a"}, {"request_percentage": math.nan}, "request_percentage is not a number"),
    (
        {"client-id-prefix": None},
        {"producer_byte_rate": 1.0},
        "Weir has no default client-id-prefix: use the default client-id",
    ),
    (
        {"client-id": "app-1", "client-id-prefix": "app-"},
        {"producer_byte_rate": 1.0},
        "Weir has no entity of a client-id and a client-id-prefix: use two",
    ),
    (
        {"user": "<default>"},
        {"producer_byte_rate": 1.0},
        "A user that is called <default> cannot be told from the default in Weir's quota file: rename it",
    ),
]
