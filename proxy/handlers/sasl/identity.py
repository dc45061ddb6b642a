"""Who a client is where its SASL exchange does not show it: what the operator says, and what was learnt."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from protocol.sasl import SUBJECT
from proxy.config.config_error import ConfigError
from proxy.config.principals import parse_principals

if TYPE_CHECKING:
    from proxy.config.settings import Settings

ANONYMOUS: Final = "ANONYMOUS"
"""Kafka's principal name of a connection that has not authenticated."""
OWNERS_MAX: Final = 10_000
"""Delegation tokens whose owners are remembered; the one not used for longest goes first."""


@dataclass(frozen=True, slots=True)
class IdentityRules:
    """The operator's rules. Names are principals' names, without `User:`."""

    claim: str = SUBJECT
    """The claim of an OAUTHBEARER token that is the name (sasl.oauthbearer.sub.claim.name)."""
    hidden: str = ANONYMOUS
    """Who clients are whose mechanism does not show the name, as GSSAPI does not."""
    unknown_owner: str = ANONYMOUS
    """Who clients are that have authenticated with a delegation token of an unknown owner."""
    unreadable: str = ANONYMOUS
    """Who clients are that have authenticated with a token whose name cannot be read; "" for nobody: their
    connections are closed.
    """


def identity_rules(settings: Settings) -> IdentityRules:
    """Return the rules. Raises ConfigError, also if names that nobody sees would grant rights."""
    claim = settings.sasl_oauthbearer_sub_claim_name.strip()
    if not claim:
        raise ConfigError(
            'sasl_oauthbearer_sub_claim_name is empty: name the claim, Kafka\'s default is "sub"'
        )
    stand_ins = {
        "gssapi_principal": settings.gssapi_principal,
        "delegation_token_principal": settings.delegation_token_principal,
    }
    if settings.unreadable_principal:
        stand_ins["unreadable_principal"] = settings.unreadable_principal
    privileged = {key: parse_principals(getattr(settings, key), key) for key in ("admins", "super_users")}
    for key, name in stand_ins.items():
        _check_stand_in(key, name)
        for role, names in privileged.items():
            if name != ANONYMOUS and name in names:
                raise ConfigError(
                    f"{key} {name} is one of {role}: it stands for clients whose names Weir cannot see: "
                    "choose another name"
                )
    return IdentityRules(
        claim,
        settings.gssapi_principal,
        settings.delegation_token_principal,
        settings.unreadable_principal,
    )


def _check_stand_in(key: str, name: str) -> None:
    if not name or name.startswith("User:"):
        raise ConfigError(f"{key} is {name!r}, must be a principal's name without its type, such as kerberos")


class Identities:
    """The rules, and what the process has learnt of identities; all sessions share it."""

    def __init__(self, rules: IdentityRules | None = None) -> None:
        """Begin without knowing the owner of any token."""
        self.rules = rules or IdentityRules()
        self.behind_sasl: set[int | None] = set()
        """The brokers that have let a client begin to authenticate: they take nothing else before that."""
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._said: set[str] = set()

    def learn_owner(self, token_id: str, owner: str) -> None:
        """A broker has said whose delegation token this is."""
        self._owners[token_id] = owner
        self._owners.move_to_end(token_id)
        if len(self._owners) > OWNERS_MAX:
            self._owners.popitem(last=False)

    def owner(self, token_id: str) -> str | None:
        """Return the principal's name of a delegation token's owner, None if it is not known."""
        owner = self._owners.get(token_id)
        if owner is not None:
            self._owners.move_to_end(token_id)
        return owner

    def first_time(self, what: str) -> bool:
        """Whether this is asked for the first time in the process: what is logged once. Few things are."""
        new = what not in self._said
        self._said.add(what)
        return new
