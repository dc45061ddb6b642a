"""Replication throttles that clients alter by AlterConfigs and IncrementalAlterConfigs (KIP-73, KIP-339).

Weir takes the throttles out of such a request and keeps them in its quota store; brokers never see them. The
rest of the request is asked of the broker, and both results become one response. So Kafka's tools
(kafka-reassign-partitions, kafka-configs) work as with brokers that keep the throttles.

Where brokers keep the throttles (`replication_throttles = brokers`), Weir forwards both APIs, and reads the
brokers' throttles again after an alteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from weir.protocol.api import ApiKey
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.error_codes import ErrorCode
from weir.protocol.framing import INCOMPLETE, request_body
from weir.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    MetadataRequest,
    MetadataResponse,
)
from weir.protocol.pieces import Pieces, chosen, each
from weir.proxy.handlers.broker_query import Asking, BrokerQuery, ask, wait_for
from weir.proxy.handlers.decisions import WAIT, Decision, Query, Wait
from weir.proxy.handlers.mutations.topic_queries import topics
from weir.proxy.handlers.plan import Context, Plan, forward_unchanged
from weir.proxy.handlers.quota_api.entities import Refused, invalid
from weir.proxy.handlers.quota_api.quota_admin import ReplicationChanges
from weir.proxy.handlers.replication.throttle_changes import (
    THROTTLE_NAMES,
    TYPES,
    Op,
    OpType,
    ResourceId,
    changes_of,
    may_change,
    stored_names,
)
from weir.proxy.handlers.unread import passed_unread
from weir.proxy.handlers.uplift.uplift import forward
from weir.proxy.handlers.whole_requests import readable_request
from weir.quotas.replication.throttles import ConfigKey, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_Request: TypeAlias = AlterConfigsRequest | IncrementalAlterConfigsRequest
_Response: TypeAlias = AlterConfigsResponse | IncrementalAlterConfigsResponse
_Name: TypeAlias = tuple[int, str]
"""Resource as a message names it: Kafka's id of the type, and the name."""

NAMES_HAVE: Final = b".replication.throttled."
"""Bytes that every throttle's name contains. A request without these bytes names no throttle."""
CHECKED_AT_ONCE_CHARS: Final = 2048
"""Maximum length of the new values of a request that Weir checks on the reactor's thread. Longer lists of
replicas are checked in another thread.
"""
_SETTING: Final = "Weir keeps the replication throttles: its setting quota_admins names who may alter them."


def plan_alter(plan: Plan) -> None:
    """Take replication throttles out of AlterConfigs or IncrementalAlterConfigs, and alter them in Weir."""
    pass_on, codec_ = plan.admit or forward_unchanged, codec(request_type(plan.api_key), plan.version)
    replaces = plan.api_key == ApiKey.ALTER_CONFIGS

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        if not complete:
            return WAIT
        may_remove = replaces and len(context.quota_admin.table.replication) > 0
        if not may_remove and data.find(NAMES_HAVE, frame, end) < 0:
            return pass_on(context, data, frame, end, complete)
        body = request_body(data, frame, end, flexible=plan.flexible_request)
        if body == INCOMPLETE:
            return WAIT
        request = readable_request(context, codec_, data, body, end)
        if request is None:
            return passed_unread(pass_on(context, data, frame, end, complete))
        if isinstance(request, Query):
            return request
        assert isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest)
        return Query(_Alteration(context, plan, request).answer())

    plan.admit, plan.whole = admit, True


def plan_pass_alter(plan: Plan) -> None:
    """Forward AlterConfigs or IncrementalAlterConfigs; after a request that names a throttle, have the
    brokers' throttles read again. Such a reading asks all brokers, so other requests cause none.
    """
    pass_on = plan.admit or forward_unchanged

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        if not complete and end - frame < context.buffer_bytes:
            return WAIT
        if data.find(NAMES_HAVE, frame, end) >= 0:
            context.quota_admin.altered_at_broker()
        return pass_on(context, data, frame, end, complete)

    plan.admit = admit


@dataclass(slots=True)
class _Resource:
    """A resource of the request that has operations on throttles."""

    wire_name: _Name
    id: ResourceId
    ops: list[Op]
    """Operations on throttles."""
    forwarded: Any
    """Entry for the broker, without the throttles; None if nothing is left for the broker."""
    refused: Refused | None = None
    """Error of the resource; None without an error so far."""
    failed: Any = None
    """Entry of the broker's response that has the broker's error; None without such an error so far."""
    changes: ReplicationChanges | None = None
    """Changes of the stored throttles; None before they are known."""


class _Alteration:
    """One request that may alter replication throttles.

    The values that the request changes are those that are in force when it arrives. If two clients append to
    the same list at the same time, one change may get lost.
    """

    def __init__(self, context: Context, plan: Plan, request: _Request) -> None:
        self._context = context
        self._plan = plan
        self._request = request
        self._replaces = isinstance(request, AlterConfigsRequest)
        self._stored: Mapping[ConfigKey, str] = context.quota_admin.table.replication.values
        self._resources: dict[_Name, _Resource] = {}
        """Resources that have operations on throttles."""
        self._rest: list[Any] = []
        """Entries of all other resources."""
        self._rejection: str | None = None
        self._is_checked = False

    def answer(self) -> BrokerQuery:
        """Alter the throttles, ask the broker for the rest; return the response to the request."""
        yield from self._split()
        yield from self._check_permission()
        yield from self._check_values()
        yield from self._check_topics()
        response = yield from self._ask_rest()
        yield from self._store()
        entries = yield from each(self._entry, self._resources.values())
        others = yield from chosen(lambda entry: _name(entry) not in self._resources, response.responses)
        response.responses = others + entries
        return response

    # The request's parts

    def _split(self) -> Pieces[None]:
        """Divide the request's resources into those with operations on throttles, and all others."""

        def split(entry: Any) -> None:
            name = _name(entry)
            resource = self._own_part(entry)
            if resource is None:
                self._rest.append(entry)
            elif name in self._resources:
                repeated.add(name)
            else:
                self._resources[name] = resource

        repeated: set[_Name] = set()
        yield from each(split, self._request.resources)
        rest = yield from chosen(lambda entry: _name(entry) not in self._resources, self._rest)
        if len(rest) < len(self._rest):
            repeated.update(_name(entry) for entry in self._rest if _name(entry) in self._resources)
            self._rest = rest
        for name in repeated:
            self._resources[name].refused = invalid("Each resource must appear at most once.")

    def _own_part(self, entry: Any) -> _Resource | None:
        """Return the part of a resource's entry that concerns throttles, and remove that part from the entry.
        Return None if no part concerns throttles.
        """
        kind = TYPES.get(entry.resource_type)
        if kind is None:
            return None
        resource = ResourceId(kind, entry.resource_name)
        ops = [self._op(config) for config in entry.configs if config.name in THROTTLE_NAMES]
        if self._replaces:
            named = {op.name for op in ops}
            gone = [name for name in stored_names(resource, self._stored) if name not in named]
            if gone and not named and not self._may_alter():
                return None
            ops += [Op(name, OpType.DELETE, None) for name in gone]
        if not ops:
            return None
        entry.configs = [config for config in entry.configs if config.name not in THROTTLE_NAMES]
        return _Resource(_name(entry), resource, ops, entry if entry.configs or self._replaces else None)

    def _op(self, config: Any) -> Op:
        return Op(config.name, OpType.SET if self._replaces else config.config_operation, config.value)

    # Checks

    def _may_alter(self) -> bool:
        """Return True if the client may alter quotas, and so replication throttles."""
        if not self._is_checked:
            client = self._context.client
            self._rejection = self._context.quota_admin.rejection(client.user, client.peer)
            self._is_checked = True
        return self._rejection is None

    def _pending(self) -> Iterable[_Resource]:
        """Return the resources that have no error so far."""
        resources = self._resources.values()
        return (resource for resource in resources if resource.refused is None and resource.failed is None)

    def _check_permission(self) -> Pieces[None]:
        """Refuse the changes of clients that may not alter quotas. A client that changes nothing needs no
        permission: kafka-reassign-partitions --verify also removes throttles where nothing is throttled.
        """

        def check(resource: _Resource) -> None:
            if not may_change(resource.id, resource.ops, self._stored):
                resource.changes = {}
            elif not self._may_alter():
                is_topic = resource.id.kind is ResourceType.TOPIC
                resource.refused = Refused(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    if is_topic
                    else ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                    f"{self._rejection} {_SETTING}",
                )

        yield from each(check, self._pending())

    def _check_values(self) -> Asking[None]:
        """Find each resource's changes, or its error."""
        unknown = [resource for resource in self._pending() if resource.changes is None]
        chars = sum(len(op.value or "") for resource in unknown for op in resource.ops)
        if chars <= CHECKED_AT_ONCE_CHARS:
            yield from each(self._check_value, unknown)
            return

        def work() -> bool:
            for resource in unknown:
                self._check_value(resource)
            return True

        if (yield from wait_for(partial(self._context.quota_admin.compute, work))) is None:
            for resource in unknown:
                resource.refused = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "Weir's log says why")

    def _check_value(self, resource: _Resource) -> None:
        try:
            resource.changes = changes_of(resource.id, resource.ops, self._stored)
        except Refused as refused:
            resource.refused = refused

    def _check_topics(self) -> Asking[None]:
        """Refuse new throttles of topics that do not exist, as brokers do. Throttles that a deleted topic has
        left can be removed.

        The broker is asked in any case, also if it gets no part of the request: it closes the connection of a
        client that has not authenticated, or has not reauthenticated in time (KIP-368).
        """
        wanted = {
            resource.id.name
            for resource in self._pending()
            if resource.id.kind is ResourceType.TOPIC and any((resource.changes or {}).values())
        }
        if not wanted:
            if not self._asks_rest():
                yield from ask(MetadataRequest(topics=[]), 1, MetadataResponse)
            return
        found = yield from topics(self._context, wanted)
        for resource in self._pending():
            if resource.id.name in wanted and resource.id.name not in found.by_name:
                text = f"The topic '{resource.id.name}' does not exist."
                resource.refused = Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)

    # The broker's part, and Weir's

    def _asks_rest(self) -> bool:
        return bool(self._rest) or any(resource.forwarded is not None for resource in self._pending())

    def _ask_rest(self) -> Asking[_Response]:
        """Have the broker alter all other configurations; return its response. The broker's error of a
        resource becomes the error of the resource's throttles.
        """
        kind = response_type(self._plan.api_key)
        parts = [resource for resource in self._pending() if resource.forwarded is not None]
        entries = self._rest + [part.forwarded for part in parts]
        if not entries and self._request.resources:
            response = kind()
        else:
            self._request.resources = entries
            response = yield from forward(self._plan, self._request, kind)
        assert isinstance(response, AlterConfigsResponse | IncrementalAlterConfigsResponse)
        results: dict[_Name, Any] = {}
        yield from each(lambda entry: results.__setitem__(_name(entry), entry), response.responses)
        for part in parts:
            result = results.get(part.wire_name)
            if result is None:
                part.refused = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker has not answered for this")
            elif result.error_code != ErrorCode.NONE:
                part.failed = result
        return response

    def _store(self) -> Asking[None]:
        """Store the changes of all resources without an error, and wait until they are in force. Either all
        are stored or none.
        """
        altered = [resource for resource in self._pending() if resource.changes]
        changes = {key: value for resource in altered for key, value in (resource.changes or {}).items()}
        if not changes or self._request.validate_only:
            return
        admin, client = self._context.quota_admin, self._context.client
        reason = yield from wait_for(partial(admin.alter_replication, changes, client.user, client.peer))
        if reason is not None:
            for resource in altered:
                resource.refused = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, reason)

    def _entry(self, resource: _Resource) -> Any:
        """Return the response's entry for a resource that has operations on throttles."""
        if resource.failed is not None:
            return resource.failed
        refused = resource.refused
        kind = AlterConfigsResponse if self._replaces else IncrementalAlterConfigsResponse
        return kind.AlterConfigsResourceResponse(
            error_code=ErrorCode.NONE if refused is None else refused.code,
            error_message=None if refused is None else refused.text,
            resource_type=resource.wire_name[0],
            resource_name=resource.wire_name[1],
        )


def _name(entry: Any) -> _Name:
    """Return the resource of an entry of a request or of a response."""
    return entry.resource_type, entry.resource_name
