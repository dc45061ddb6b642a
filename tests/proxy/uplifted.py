"""The versions that uplift adds, and the ApiVersions response of a broker without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.proxy.broker_versions import broker_of
from tests.wire.frames import response
from weir.protocol.api import ApiKey
from weir.protocol.messages import ApiVersionsResponse
from weir.protocol.versions import VersionRange
from weir.proxy.handlers.uplift.uplift_rule import offered

RELEASES: Final = ((0, 10, 2), (1, 1), (2, 8))


def raised() -> list[Any]:
    """Each version that is offered beyond a broker's, but of ApiVersions: (release, API key, version)."""
    found = []
    for release in RELEASES:
        broker = broker_of(release)
        others = {key: versions for key, versions in offered(broker).items() if key != ApiKey.API_VERSIONS}
        for key, versions in others.items():
            for version in range(broker[key].max + 1, versions.max + 1):
                name = f"{'.'.join(map(str, release))}-{ApiKey(key).name}-v{version}"
                found.append(pytest.param(release, key, version, id=name))
    return found


RAISED: Final = raised()


def told(broker: Mapping[int, VersionRange], version: int = 0, correlation_id: int = 1) -> bytes:
    entry = ApiVersionsResponse.ApiVersion
    keys = [entry(api_key=key, min_version=one.min, max_version=one.max) for key, one in broker.items()]
    return response(ApiVersionsResponse(api_keys=keys), version, correlation_id)
