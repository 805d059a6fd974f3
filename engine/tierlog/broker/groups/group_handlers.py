"""The APIs of groups and their members: FindCoordinator, JoinGroup and its like, ListGroups and its like."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.coordinator import GroupCoordinator
from tierlog.broker.groups.group import GroupState
from tierlog.broker.groups.members import JoinRequest, Member, SyncAnswer, SyncRequest
from tierlog.broker.groups.offset_handlers import OffsetCommit, OffsetDelete, OffsetFetch, answer_to
from tierlog.broker.handling import Handler, RequestContext
from tierlog.broker.partitions import Catalog
from tierlog.broker.protocol.entities import Entities, MadeElements, entities_of, field_of
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.waiting.loops import LoopFuture

_MILLISECOND: Final = timedelta(milliseconds=1)


class GroupHandler:
    """A handler of one API of groups."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator


class JoinGroup(GroupHandler):
    """A client joins a group; the answer comes with the generation."""

    api_key: ClassVar[int] = 11
    versions: ClassVar[range] = range(10)

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request."""
        version = context.api_version
        session_timeout_ms = request.session_timeout // _MILLISECOND
        protocols: dict[str, bytes] = {}
        for protocol in request.protocols:  # of a name that comes twice Kafka takes the first
            protocols.setdefault(protocol.name, bytes(protocol.metadata))
        joins = JoinRequest(
            request.group_id,
            request.member_id,
            request.protocol_type,
            tuple(protocols.items()),
            session_timeout_ms,
            request.rebalance_timeout // _MILLISECOND if version >= 1 else session_timeout_ms,
            field_of(request, "group_instance_id"),
            field_of(request, "reason") or "",
            context.client_id,
            f"/{context.client_host}",  # as Java writes an address
            must_know_member_id=version >= 4,
            can_skip_assignment=version >= 9,
        )
        answer = await answer_to(partial(self._coordinator.join, joins))
        entities = entities_of(self.api_key, version)
        return entities.response(
            error_code=answer.error,
            generation_id=answer.generation_id,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name or (None if version >= 7 else ""),
            leader=answer.leader,
            skip_assignment=answer.skip_assignment,
            member_id=answer.member_id,
            members=tuple(
                entities.make(
                    "JoinGroupResponseMember", member_id=member_id, group_instance_id=instance_id, metadata=metadata
                )
                for member_id, instance_id, metadata in answer.members
            ),
        )


class SyncGroup(GroupHandler):
    """A member asks for its assignment; a leader brings those of all."""

    api_key: ClassVar[int] = 14
    versions: ClassVar[range] = range(6)

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request."""
        version = context.api_version
        protocol_type, protocol_name = field_of(request, "protocol_type"), field_of(request, "protocol_name")
        if version >= 5 and (protocol_type is None or protocol_name is None):
            answer = SyncAnswer(ErrorCode.inconsistent_group_protocol)
        else:
            asked = SyncRequest(
                request.group_id,
                request.member_id,
                request.generation_id,
                field_of(request, "group_instance_id"),
                protocol_type,
                protocol_name,
                tuple((given.member_id, bytes(given.assignment)) for given in request.assignments),
            )
            answer = await answer_to(partial(self._coordinator.sync, asked))
        return entities_of(self.api_key, version).response(
            error_code=answer.error,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignment=answer.assignment,
        )


class Heartbeat(GroupHandler):
    """A member shows that it is alive."""

    api_key: ClassVar[int] = 12
    versions: ClassVar[range] = range(5)

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request."""
        error = self._coordinator.heartbeat(
            request.group_id, request.member_id, field_of(request, "group_instance_id"), request.generation_id
        )
        return entities_of(self.api_key, context.api_version).response(error_code=error)


class LeaveGroup(GroupHandler):
    """Members leave, or are made to leave by an administrator."""

    api_key: ClassVar[int] = 13
    versions: ClassVar[range] = range(6)

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request. Up to version 2 there is one member, and its error is that of the answer."""
        version = context.api_version
        members: list[tuple[str, str | None, str]]
        if version >= 3:
            members = [
                (member.member_id, member.group_instance_id, field_of(member, "reason") or "")
                for member in request.members
            ]
        else:
            members = [(request.member_id, None, "")]
        reply = LoopFuture[tuple[ErrorCode, list[ErrorCode]]]()
        self._coordinator.leave(request.group_id, members, lambda error, each: reply.give((error, each)))
        error, errors = await reply.wait()
        if version < 3 and error is ErrorCode.none:
            [error] = errors
        entities = entities_of(self.api_key, version)
        told = ()
        if version >= 3:
            told = tuple(
                entities.make("MemberResponse", member_id=member_id, group_instance_id=instance_id, error_code=its)
                for (member_id, instance_id, _), its in zip(members, errors, strict=False)
            )
        return entities.response(error_code=error, members=told)


_GROUP: Final = 0
_TRANSACTION: Final = 1
_NO_NODE: Final = -1


class FindCoordinator:
    """The handler of FindCoordinator.

    Args:
        node_id: Of this node, as Metadata names it.
    """

    api_key: ClassVar[int] = 10
    versions: ClassVar[range] = range(7)

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request; from version 4 on for several keys at once."""
        entities = entities_of(self.api_key, context.api_version)
        error, text = self._refusal(field_of(request, "key_type", _GROUP))
        is_fine = error is ErrorCode.none
        told = {
            "error_code": error,
            "error_message": text,
            "node_id": self._node_id if is_fine else _NO_NODE,
            "host": context.advertised_host if is_fine else "",
            "port": context.advertised_port if is_fine else _NO_NODE,
        }
        if context.api_version < 4:
            return entities.response(**told)
        coordinators = MadeElements(request.coordinator_keys, lambda key: entities.make("Coordinator", key=key, **told))
        return entities.response(coordinators=coordinators)

    @staticmethod
    def _refusal(key_type: int) -> tuple[ErrorCode, str | None]:
        """Return the error for a type without a coordinator. Clients retry none of these errors."""
        if key_type == _GROUP:
            return ErrorCode.none, None
        if key_type == _TRANSACTION:  # producers end at this one; of others some ask again for ever
            return ErrorCode.transactional_id_authorization_failed, "read-only replica: there are no transactions"
        return ErrorCode.invalid_request, f"there is no coordinator of type {key_type}"


#: The type of all groups here; "consumer" are those of the new protocol.
_CLASSIC: Final = "classic"
#: Bits of Kafka's AclOperation: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: all operations on groups. A
#: client that gets here may call all of them: there are no ACLs.
_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
_NOT_ASKED: Final = -(1 << 31)
#: Groups of one request that are deleted together.
_DELETED_AT_ONCE: Final = 1000


class ListGroups(GroupHandler):
    """All groups, or those in some states or of some types."""

    api_key: ClassVar[int] = 16
    versions: ClassVar[range] = range(6)

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request. Filters take any case."""
        entities = entities_of(self.api_key, context.api_version)
        states = {state.strip().lower() for state in field_of(request, "states_filter", ())}
        types = {kind.strip().lower() for kind in field_of(request, "types_filter", ())}
        listed = [
            (group.group_id, group.protocol_type or "", group.state.value)
            for group in self._coordinator.groups()
            if (not states or group.state.value.lower() in states) and (not types or _CLASSIC in types)
        ]
        groups = MadeElements(
            listed,
            lambda group: entities.make(
                "ListedGroup",
                group_id=group[0],
                protocol_type=group[1],
                group_state=group[2],
                group_type=_CLASSIC,
            ),
        )
        return entities.response(error_code=ErrorCode.none, groups=groups)


class DescribeGroups(GroupHandler):
    """State and members of groups."""

    api_key: ClassVar[int] = 15
    versions: ClassVar[range] = range(7)

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request. A group that is not there is "Dead"; from version 6 on it is an error, too. One that is
        named twice is answered once: its description may be a million times as long as its name.
        """
        entities = entities_of(self.api_key, context.api_version)
        wants_operations = field_of(request, "include_authorized_operations", default=False)

        def described(found: tuple[str, Any]) -> Any:
            group_id, group = found
            return group or self._missing(entities, context.api_version, group_id, wants_operations)

        groups = [(name, self._described(entities, name, wants_operations)) for name in dict.fromkeys(request.groups)]
        nested = sum(len(group.members) for _, group in groups if group is not None)
        return entities.response(groups=MadeElements(groups, described, nested=nested))

    @staticmethod
    def _missing(entities: Entities, version: int, group_id: str, wants_operations: bool) -> Any:
        is_error = version >= 6
        return entities.make(
            "DescribedGroup",
            error_code=ErrorCode.group_id_not_found if is_error else ErrorCode.none,
            error_message=f"Group {group_id} not found." if is_error else None,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            protocol_type="",
            protocol_data="",
            members=(),
            authorized_operations=_OPERATIONS if wants_operations and not is_error else _NOT_ASKED,
        )

    def _described(self, entities: Entities, group_id: str, wants_operations: bool) -> Any:
        """A group as it is now; None if it is not there."""
        group = self._coordinator.find(group_id)
        if group is None:
            return None
        is_stable = group.state is GroupState.STABLE
        return entities.make(
            "DescribedGroup",
            error_code=ErrorCode.none,
            group_id=group.group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if is_stable else "",
            members=tuple(
                self._member(entities, member, group.protocol_name if is_stable else None)
                for member in group.members.values()
            ),
            authorized_operations=_OPERATIONS if wants_operations else _NOT_ASKED,
        )

    @staticmethod
    def _member(entities: Entities, member: Member, protocol_name: str | None) -> Any:
        return entities.make(
            "DescribedGroupMember",
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(protocol_name),
            member_assignment=member.assignment,
        )


class DeleteGroups(GroupHandler):
    """Groups without members are deleted, with their offsets."""

    api_key: ClassVar[int] = 42
    versions: ClassVar[range] = range(3)

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request. A group that is named twice is answered once."""
        entities = entities_of(self.api_key, context.api_version)
        errors: dict[str, ErrorCode] = {}
        names = request.groups_names
        for start in range(0, len(names), _DELETED_AT_ONCE):
            some = [name for name in dict.fromkeys(names[start : start + _DELETED_AT_ONCE]) if name not in errors]
            errors |= await answer_to(partial(self._coordinator.delete_groups, some))
        results = MadeElements(
            errors.items(),
            lambda result: entities.make("DeletableGroupResult", group_id=result[0], error_code=result[1]),
        )
        return entities.response(results=results)


def group_handlers(coordinator: GroupCoordinator, catalog: Catalog, clock: Clock, *, node_id: int) -> list[Handler]:
    """Return one handler for each API of groups.

    Args:
        coordinator: Answers them.
        catalog: The partitions for which offsets may be committed.
        clock: Gives the times of commits.
        node_id: Of this node, as Metadata names it.
    """
    return [
        FindCoordinator(node_id),
        JoinGroup(coordinator),
        SyncGroup(coordinator),
        Heartbeat(coordinator),
        LeaveGroup(coordinator),
        OffsetCommit(coordinator, catalog, clock),
        OffsetFetch(coordinator, catalog),
        OffsetDelete(coordinator, catalog),
        ListGroups(coordinator),
        DescribeGroups(coordinator),
        DeleteGroups(coordinator),
    ]
