"""The numbers in `data/`: what Kafka 3.9.1's own classes answered, typed. Times are ms from `t0_ms`."""

from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import msgspec

from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable

C = TypeVar("C")
DATA = Path(__file__).parent / "data"

EntityVector: TypeAlias = dict[str, str | None]
"""A missing key is not part of the entity, None is the default."""
TagsVector: TypeAlias = dict[str, str]


class Quota(msgspec.Struct):
    entity: EntityVector
    value: float


class RateStep(msgspec.Struct):
    op: str
    t: int
    v: float | None = None
    rate: float = 0.0
    window_ms: int = 0
    over: bool = False
    throttle_ms: int = 0
    throttle_bounded_ms: int = 0


class Case(msgspec.Struct, kw_only=True):
    id: str
    note: str
    num_samples: int
    window_ms: int
    quota: float | None
    t0_ms: int


class RateCase(Case, kw_only=True):
    stat: str
    steps: list[RateStep]


class Topic(msgspec.Struct):
    t: int
    v: float
    accepted: bool
    error_code: int
    exception_throttle_ms: int | None


class BucketStep(msgspec.Struct):
    op: str
    t: int
    v: float | None = None
    tokens: float = 0.0
    accepted: bool = True
    throttle_ms: int = 0
    kind: str = ""
    topics: list[Topic] = []
    respond_t: int = 0
    response_throttle_ms: int = 0


class BucketCase(Case, kw_only=True):
    steps: list[BucketStep]


class Cases(msgspec.Struct, Generic[C]):
    cases: list[C]


class RateFormula(msgspec.Struct):
    rate: float
    quota: float
    window_ms: int
    throttle_ms: int
    as_int32: int
    bounded_1000_ms: int


class TokenFormula(msgspec.Struct):
    tokens: float
    quota: float
    throttle_ms: int


class FetchCap(msgspec.Struct):
    quota: float
    num_samples: int
    window_s: int
    max_value: float
    as_int32_saturated: int
    max_value_without_quota_int32: int


class Lookup(msgspec.Struct, rename={"client_id": "client-id"}):
    user: str
    client_id: str
    tags: TagsVector
    limit: float | None


class Resolution(msgspec.Struct):
    id: str
    quotas: list[Quota]
    lookups: list[Lookup]


class Sanitized(msgspec.Struct):
    name: str
    sanitized: str


class FlowStep(msgspec.Struct, rename={"client_id": "client-id"}):
    op: str
    t: int
    user: str = ""
    client_id: str = ""
    v: float = 0.0
    tags: TagsVector = {}
    limit: float | None = None
    throttle_ms: int = 0
    entity: EntityVector = {}
    value: float | None = None


class Flow(msgspec.Struct):
    id: str
    quota_type: str
    num_samples: int
    window_s: int
    t0_ms: int
    quotas: list[Quota]
    steps: list[FlowStep]


class ThrottleFile(msgspec.Struct):
    rate_formula: list[RateFormula]
    token_formula: list[TokenFormula]
    fetch_cap: list[FetchCap]
    entity_resolution: list[Resolution]
    sanitize: list[Sanitized]
    flows: list[Flow]


RATE = msgspec.json.decode((DATA / "rate.json").read_bytes(), type=Cases[RateCase]).cases
BUCKET = msgspec.json.decode((DATA / "token_bucket.json").read_bytes(), type=Cases[BucketCase]).cases
THROTTLE = msgspec.json.decode((DATA / "throttle.json").read_bytes(), type=ThrottleFile)


def entity(vector: EntityVector) -> Entity:
    user, client_id = (
        None if kind not in vector else DEFAULT if vector[kind] is None else vector[kind]
        for kind in ("user", "client-id")
    )
    return Entity(user, client_id)


def table(quotas: list[Quota], key: QuotaKey) -> QuotaTable:
    return QuotaTable({(entity(quota.entity), key): quota.value for quota in quotas})
