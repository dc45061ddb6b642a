"""Kafka's `ssl.principal.mapping.rules` (KIP-371): from a certificate's subject to a principal's name.

`DEFAULT` takes the subject unchanged. `RULE:pattern/replacement/`, with an optional L or U for lower or upper
case, applies if the pattern matches the whole subject, and then replaces every match in it. The first rule
that applies counts. Patterns and replacements are Java's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from weir.proxy.config.settings import ConfigError
from weir.proxy.net.tls.java_pattern import translate

NAME: Final = "ssl_principal_mapping_rules"

Piece: TypeAlias = str | int
"""Part of a replacement: text, or the number of a group."""

_BETWEEN: Final = re.compile(r"[\s,]*", re.ASCII)
_RULE: Final = re.compile(
    r"(?:DEFAULT|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|\Z)",
    re.ASCII,
)
_REFERENCE: Final = re.compile(r"\$([0-9]+)", re.ASCII)


class UnmappedError(Exception):
    """Error: no mapping rule applies to a certificate's subject."""


@dataclass(frozen=True, slots=True)
class MappingRule:
    """A mapping rule. A rule without a pattern is DEFAULT, which takes the subject unchanged."""

    pattern: re.Pattern[str] | None = None
    replacement: tuple[Piece, ...] = ()
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """Return the principal's name for a certificate's subject; None if the rule does not apply to the
        subject.
        """
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(self._replaced, subject)
        if self.case:
            name = name.lower() if self.case == "L" else name.upper()
        return name

    def _replaced(self, match: re.Match[str]) -> str:
        return "".join(piece if isinstance(piece, str) else match[piece] or "" for piece in self.replacement)


@dataclass(frozen=True, slots=True)
class PrincipalMapping:
    """The rules that map a certificate's subject to a principal's name, in the order in which they are
    tried.
    """

    rules: tuple[MappingRule, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the mapping that this text, with rules separated by commas, describes. Raises
        ConfigError.
        """
        rules: list[MappingRule] = []
        start = _skip(text, 0)
        while start < len(text):
            match = _RULE.match(text, start)
            if match is None:
                raise ConfigError(
                    f"{NAME}: {text[start:]!r} is no rule: write DEFAULT or RULE:pattern/replacement/[LU], "
                    "separated by commas; a / within needs a backslash"
                )
            rules.append(_rule(match))
            start = _skip(text, match.end())
        if not rules:
            raise ConfigError(f"{NAME} has no rule, no client would have a name: write DEFAULT")
        return cls(tuple(rules))

    def name(self, subject: str) -> str:
        """Return the principal's name for a certificate's subject, by the first rule that applies. Raises
        UnmappedError.
        """
        for rule in self.rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise UnmappedError(f"no rule of {NAME} applies to {subject!r}")


def _skip(text: str, start: int) -> int:
    match = _BETWEEN.match(text, start)
    return match.end() if match else start


def _rule(match: re.Match[str]) -> MappingRule:
    if match["pattern"] is None:
        return MappingRule()
    try:
        pattern = translate(match["pattern"])
        replacement = _pieces(_with_literal_references(match["replacement"], pattern.groups), pattern)
    except ValueError as error:
        raise ConfigError(f"{NAME}: {error}") from None
    return MappingRule(pattern, replacement, match["case"])


def _with_literal_references(replacement: str, groups: int) -> str:
    """Escape each `$` in a replacement that refers to a group that the pattern lacks, as Kafka does.

    If there are several, Kafka puts the backslashes of all but the first in the wrong places. This function
    does the same, so that a rule gives the same name as in Kafka.
    """
    if not groups:
        return replacement
    escaped = replacement
    for match in _REFERENCE.finditer(replacement):
        number = match[1]
        while int(number) > groups and len(number) > 1:
            number = number[:-1]
        if not match[1].startswith("0") and int(number) > groups:
            at = match.start()
            escaped = f"{escaped[:at]}\\{escaped[at:]}"
    return escaped


def _pieces(replacement: str, pattern: re.Pattern[str]) -> tuple[Piece, ...]:
    """Split a replacement into text and numbers of groups, like Java's Matcher.appendReplacement. Raises
    ValueError where that method fails.
    """
    pieces: list[Piece] = []
    rest = replacement
    while rest:
        piece: Piece
        if rest[0] == "\\":
            if len(rest) == 1:
                raise ValueError(f"the replacement {replacement!r} ends in a backslash")
            piece, rest = rest[1], rest[2:]
        elif rest[0] == "$":
            piece, rest = _group(rest[1:], pattern, replacement)
        else:
            piece, rest = rest[0], rest[1:]
        pieces.append(piece)
    return tuple(pieces)


def _group(rest: str, pattern: re.Pattern[str], replacement: str) -> tuple[int, str]:
    """Return the group referenced behind a `$` (with as many digits as fit the number of groups), and the
    remaining text.
    """
    named = re.match(r"\{([a-zA-Z][a-zA-Z0-9]*)\}", rest)
    if named and named[1] in pattern.groupindex:
        return pattern.groupindex[named[1]], rest[named.end() :]
    if not re.match("[0-9]", rest) or int(rest[0]) > pattern.groups:
        raise ValueError(
            f"the replacement {replacement!r} refers to no group of the pattern {pattern.pattern!r}: "
            "write $1, ${name} or \\$"
        )
    number, rest = int(rest[0]), rest[1:]
    while re.match("[0-9]", rest) and number * 10 + int(rest[0]) <= pattern.groups:
        number, rest = number * 10 + int(rest[0]), rest[1:]
    return number, rest
