"""Arbitrary mutations of topics, for a model of the controller and for Weir."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from hypothesis import strategies as st

from tests.kfake.controller import NODE, Controller
from tests.mutations.requests import Create, Delete, Grow, Mutation, Topic

RATE: Final = 2.0
SAMPLES: Final = 5
NAMES: Final = ("p.a", "p.b", "p.c", "p.d", "e", "f")
COUNTS: Final = st.sampled_from([-2, -1, 0, 1, 2, 3, 5, 12, 2**31 - 1, -(2**31)])


@st.composite
def creations(draw: st.DrawFn) -> Create:
    version = draw(st.sampled_from([0, 1, 2, 4, 5, 6, 7]))
    topics = draw(st.lists(topics_to_create(), min_size=0, max_size=5))
    return Create(tuple(topics), version, validate_only=version > 0 and draw(st.booleans()))


@st.composite
def topics_to_create(draw: st.DrawFn) -> Topic:
    name = draw(st.sampled_from([*NAMES, "not/legal", "..", "n" * 250]))
    kind = draw(st.sampled_from(["plain", "plain", "plain", "manual", "replicas", "config", "strangers"]))
    count = draw(COUNTS.filter(lambda each: each < 100))
    match kind:
        case "manual":
            return Topic(name, assignments=[[NODE]] * draw(st.integers(1, 4)))
        case "strangers":
            return Topic(name, assignments=[[99]] * draw(st.integers(1, 4)))
        case "replicas":
            return Topic(name, count, replicas=draw(st.sampled_from([-2, -1, 0, 2, 99])))
        case "config":
            return Topic(name, count, configs={"no.such": "thing"})
    return Topic(name, count)


@st.composite
def growths(draw: st.DrawFn) -> Grow:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=0, max_size=4))
    counts = tuple((name, draw(COUNTS.filter(lambda each: each < 100))) for name in names)
    manual = draw(st.sampled_from([None, None, [[NODE]], [[NODE], [NODE]], [[99]], []]))
    return Grow(counts, draw(st.integers(0, 3)), draw(st.booleans()), manual)


@dataclass(frozen=True)
class Named:
    """A deletion's topic, by name or by the id that it has then; None: there is no such id."""

    name: str | None
    by_id: bool


@st.composite
def deletions(draw: st.DrawFn) -> tuple[tuple[Named, ...], int]:
    version = draw(st.integers(0, 6))
    some = st.sampled_from([*NAMES, None] if version == 6 else list(NAMES))
    names = draw(st.lists(some, min_size=1, max_size=4))
    return tuple(
        Named(name, name is None or (version == 6 and draw(st.booleans()))) for name in names
    ), version


STEPS: Final = st.tuples(
    st.sampled_from([0, 0, 1, 300, 500, 1000, 2500, 5000, 20_000]),
    st.one_of(creations(), growths(), deletions()),
)


def mutation_of(what: Create | Grow | tuple[tuple[Named, ...], int], controller: Controller) -> Mutation:
    if isinstance(what, Create | Grow):
        return what
    some, version = what
    ids = {name: topic.topic_id for name, topic in controller.topics.items()}
    return Delete(
        tuple(ids.get(one.name or "", UUID(int=1)) if one.by_id else one.name or "" for one in some), version
    )
