"""Error codes of each API: those that real brokers answered to `weir probe` are all in the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.conformance.expected import MOCK, RELEASES, expected
from weir.conformance.verify.error_codes import ERRORS_OF_APIS
from weir.protocol import schema
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode

OF_THE_MOCK: Final = {("Heartbeat", 69), ("LeaveGroup", 69), ("OffsetCommit", 75)}
"""Codes that librdkafka's mock cluster answers, and brokers do not."""
BETWEEN_BROKERS: Final = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.ALTER_PARTITION,
    ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
}


def answered(target: str) -> Iterator[tuple[str, int]]:
    """Yield (API, error code) for each error of the expected outcomes."""
    for case, summary in expected(target).items():
        outcome, *codes = summary.split()
        if outcome == "error":
            yield from ((case.partition("/")[0], int(code)) for code in codes)


def of_other_apis(target: str) -> set[tuple[str, int]]:
    """Return the (API, error code) that the rule would find."""
    names = {found.name: key for key in ApiKey if (found := schema.api(key)) is not None}
    return {
        (api, code)
        for api, code in answered(target)
        if api in names and code not in ERRORS_OF_APIS.get(names[api], {code})
    }


@pytest.mark.parametrize("release", RELEASES)
def test_the_table_has_every_code_that_a_broker_answered_to_the_probe(release: str) -> None:
    assert len(set(answered(release))) > 15
    assert of_other_apis(release) == set()


def test_the_mock_cluster_answers_three_codes_that_brokers_do_not() -> None:
    assert of_other_apis(MOCK) == OF_THE_MOCK


def test_the_table_leaves_out_brokers_own_apis_and_those_of_kafka_4() -> None:
    left_out = set(ApiKey) - ERRORS_OF_APIS.keys()
    new = {key for key in ApiKey if key > ApiKey.SHARE_GROUP_DESCRIBE}
    assert left_out == BETWEEN_BROKERS | new


def test_the_table_has_no_success_and_no_throttling_which_has_a_rule_of_its_own() -> None:
    separate = {ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert all(separate.isdisjoint(codes) for codes in ERRORS_OF_APIS.values())
