"""Prices of use, for show-back."""

from __future__ import annotations

import tomllib
from typing import Annotated, Final

import msgspec

from weir.pipeline.outcome import PipelineError

_Price = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices of use in one currency, named as in the file of prices."""

    currency: Annotated[str, msgspec.Meta(min_length=1, max_length=10)]
    in_per_gb: _Price = 0.0
    """Price of 10^9 bytes from clients."""
    out_per_gb: _Price = 0.0
    """Price of 10^9 bytes to clients."""
    request_time_per_h: _Price = 0.0
    """Price of one hour of a broker's thread."""


NO_PRICES: Final = Prices("")


def parse_prices(text: str) -> Prices:
    """Return the prices in the text of a file of prices. Raises PipelineError, without the file's name."""
    try:
        return msgspec.convert(tomllib.loads(text), Prices)
    except (
        msgspec.MsgspecError,
        ValueError,
        RecursionError,
    ) as error:  # numbers of 5000 digits and deep nesting, too
        raise PipelineError(f"no prices: {error}") from None
