"""ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.coordinator import GroupCoordinator
from tierlog.broker.groups.group import GroupState
from tierlog.broker.groups.handlers.membership_handlers import NO_THROTTLE
from tierlog.broker.groups.members import Member
from tierlog.broker.handling import RequestContext
from tierlog.broker.protocol.entities import Entities, MadeElements, entities_of, field_of
from tierlog.runtime.waiting.loops import Reply

#: The type of all groups here; "consumer" are those of the new protocol.
_CLASSIC: Final = "classic"
#: Bits of Kafka's AclOperation: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: all that there are of groups.
#: Who gets here may do all of them: there are no ACLs.
_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
_NOT_ASKED: Final = -(1 << 31)
#: Groups of one request that are deleted together.
_DELETED_AT_ONCE: Final = 1000


class ListGroups:
    """All groups, or those in some states or of some types."""

    api_key: ClassVar[int] = 16
    versions: ClassVar[range] = range(6)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request. Filters take any case."""
        make = entities_of(self.api_key, context.api_version).make
        states = {state.strip().lower() for state in field_of(request, "states_filter", ())}
        types = {kind.strip().lower() for kind in field_of(request, "types_filter", ())}
        listed = [
            (group.group_id, group.protocol_type or "", group.state.value)
            for group in self._coordinator.groups()
            if (not states or group.state.value.lower() in states) and (not types or _CLASSIC in types)
        ]
        groups = MadeElements(
            listed,
            lambda group: make(
                "ListedGroup",
                group_id=group[0],
                protocol_type=group[1],
                group_state=group[2],
                group_type=_CLASSIC,
            ),
        )
        return make("ListGroupsResponse", throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=groups)


class DescribeGroups:
    """State and members of groups."""

    api_key: ClassVar[int] = 15
    versions: ClassVar[range] = range(7)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request. A group that is not there is "Dead"; from version 6 on it is an error, too."""
        entities = entities_of(self.api_key, context.api_version)
        wants_operations = field_of(request, "include_authorized_operations", default=False)

        def described(found: tuple[str, Any]) -> Any:
            group_id, group = found
            return group or self._missing(entities, context.api_version, group_id, wants_operations)

        groups = [(name, self._described(entities, name, wants_operations)) for name in request.groups]
        nested = sum(len(group.members) for _, group in groups if group is not None)
        return entities.make(
            "DescribeGroupsResponse", throttle_time=NO_THROTTLE, groups=MadeElements(groups, described, nested=nested)
        )

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


class DeleteGroups:
    """Groups without members are deleted, with their offsets."""

    api_key: ClassVar[int] = 42
    versions: ClassVar[range] = range(3)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request. A group that is named twice is told of once."""
        make = entities_of(self.api_key, context.api_version).make
        errors: dict[str, ErrorCode] = {}
        names = request.groups_names
        for start in range(0, len(names), _DELETED_AT_ONCE):
            reply = Reply[dict[str, ErrorCode]]()
            some = [name for name in dict.fromkeys(names[start : start + _DELETED_AT_ONCE]) if name not in errors]
            self._coordinator.delete_groups(some, reply.give)
            errors |= await reply.wait()
        results = MadeElements(
            errors.items(),
            lambda result: make("DeletableGroupResult", group_id=result[0], error_code=result[1]),
        )
        return make("DeleteGroupsResponse", throttle_time=NO_THROTTLE, results=results)
