"""A connection's parse cache: how a request that begins with known bytes is to be forwarded.

Clients repeat themselves: while the next request of a plan has the same first bytes, from its client-id on as
far as the answer depends on, it need not be parsed again. The answer holds for the quotas in force and while
the client is not over `budget`; both are looked at each time. With the cache or without, the same happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from proxy.handlers.decisions import Forward
    from proxy.handlers.plan import NeedsLook, Plan
    from quotas import Budget

HEAD_BYTES_MAX: Final = 1024
"""Longer beginnings are not kept: each connection keeps one, and a client-id may have 32 KB."""


class ParseCache:
    """The latest request that was parsed."""

    __slots__ = ("budget", "forward", "generation", "head", "plan", "unless")

    def __init__(self) -> None:
        """Begin empty."""
        self.plan: Plan | None = None
        self.head = b""
        """From the client-id on, as far as the answer depends on."""
        self.forward: Forward | None = None
        self.generation = -1
        """Generation of the quotas at the time."""
        self.budget: Budget | None = None
        """The budget that must not be throttled; None if none matters."""
        self.unless: NeedsLook | None = None
        """Says whether a request that begins with `head` needs another look; None: none does."""

    def fill(self, plan: Plan, head: bytes, forward: Forward, generation: int, budget: Budget | None) -> None:
        """Keep the answer for requests of the plan that begin with `head`."""
        if len(head) <= HEAD_BYTES_MAX:
            self.plan, self.head, self.forward = plan, head, forward
            self.generation, self.budget, self.unless = generation, budget, None

    def clear(self) -> None:
        """Forget it."""
        self.plan = None
