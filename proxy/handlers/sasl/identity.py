"""Principals that SASL exchanges do not show: set by the operator, or learnt from brokers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weir.protocol.sasl import SUBJECT
from weir.proxy.config.principals import parse_principals
from weir.proxy.config.settings import ConfigError

if TYPE_CHECKING:
    from weir.proxy.config.settings import Settings

ANONYMOUS: Final = "ANONYMOUS"
"""Kafka's principal of connections that have not authenticated."""
OWNERS_MAX: Final = 10_000
"""Maximum number of delegation tokens whose owners are kept; the least recently used one is removed first."""


@dataclass(frozen=True, slots=True)
class IdentityRules:
    """The operator's settings by which Weir finds the principals of SASL clients. Names are written without
    `User:`.
    """

    claim: str = SUBJECT
    """Claim of OAUTHBEARER tokens that has the client's name (sasl.oauthbearer.sub.claim.name)."""
    unreadable: str = ANONYMOUS
    """Principal of clients whose name Weir cannot see: the mechanism does not show it (GSSAPI), the owner of
    a delegation token is unknown, or a token cannot be read. "" closes their connections.
    """


def identity_rules(settings: Settings) -> IdentityRules:
    """Return the rules that the operator's settings describe. Raises ConfigError if a setting is invalid, or
    if the substitute name is a principal with special rights.
    """
    claim = settings.sasl_oauthbearer_sub_claim_name.strip()
    if not claim:
        raise ConfigError(
            'sasl_oauthbearer_sub_claim_name is empty: name the claim, Kafka\'s default is "sub"'
        )
    name = settings.unreadable_principal
    if name.startswith("User:"):
        raise ConfigError(
            f"unreadable_principal is {name!r}, must be a principal's name without its type, such as kerberos"
        )
    for role in ("quota_admins", "super_users"):
        if name in parse_principals(getattr(settings, role), role) and name != ANONYMOUS:
            raise ConfigError(
                f"unreadable_principal {name} is one of {role}: it stands for clients whose names Weir "
                "cannot see: choose another name"
            )
    return IdentityRules(claim, name)


class Identities:
    """The operator's rules for principals, and the owners of delegation tokens that this process has learnt;
    shared by all connections.
    """

    def __init__(self, rules: IdentityRules | None = None, brokers: frozenset[str] | None = None) -> None:
        """Begin with no owner learnt."""
        self.rules = rules or IdentityRules()
        self.brokers = brokers
        """Principals of brokers at a replication listener. Every principal there is a broker if the set is
        empty; None at all other listeners.
        """
        self.behind_sasl: set[int | None] = set()
        """Node ids of brokers that have accepted a SaslHandshake, and so require SASL. Before a login, such a
        broker accepts only SASL requests and ApiVersions; requests before a login are therefore not charged.
        """
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._said: set[str] = set()

    def learn_owner(self, token_id: str, owner: str) -> None:
        """Record the principal that owns a delegation token, which a broker's response has named."""
        self._owners[token_id] = owner
        self._owners.move_to_end(token_id)
        if len(self._owners) > OWNERS_MAX:
            self._owners.popitem(last=False)

    def owner(self, token_id: str) -> str | None:
        """Return the principal that owns a delegation token; None if Weir has not learnt the owner."""
        owner = self._owners.get(token_id)
        if owner is not None:
            self._owners.move_to_end(token_id)
        return owner

    def first_time(self, what: str) -> bool:
        """Return True if this is the first call with this text in the process. Callers use this to log an
        event only once.
        """
        new = what not in self._said
        self._said.add(what)
        return new
