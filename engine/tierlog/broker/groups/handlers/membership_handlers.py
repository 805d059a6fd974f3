"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.coordinator import GroupCoordinator
from tierlog.broker.groups.members import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from tierlog.broker.handling import RequestContext
from tierlog.broker.protocol.entities import entities_of, field_of
from tierlog.runtime.waiting.loops import Reply

NO_THROTTLE: Final = timedelta()
_MILLISECOND: Final = timedelta(milliseconds=1)


class JoinGroup:
    """A client joins a group; the answer comes with the generation."""

    api_key: ClassVar[int] = 11
    versions: ClassVar[range] = range(10)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

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
        reply = Reply[JoinAnswer]()
        self._coordinator.join(joins, reply.give)
        answer = await reply.wait()
        make = entities_of(self.api_key, version).make
        return make(
            "JoinGroupResponse",
            throttle_time=NO_THROTTLE,
            error_code=answer.error,
            generation_id=answer.generation_id,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name or (None if version >= 7 else ""),
            leader=answer.leader,
            skip_assignment=answer.skip_assignment,
            member_id=answer.member_id,
            members=tuple(
                make("JoinGroupResponseMember", member_id=member_id, group_instance_id=instance_id, metadata=metadata)
                for member_id, instance_id, metadata in answer.members
            ),
        )


class SyncGroup:
    """A member asks for its assignment; a leader brings those of all."""

    api_key: ClassVar[int] = 14
    versions: ClassVar[range] = range(6)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request."""
        version = context.api_version
        protocol_type, protocol_name = field_of(request, "protocol_type"), field_of(request, "protocol_name")
        if version >= 5 and (protocol_type is None or protocol_name is None):
            answer = SyncAnswer(ErrorCode.inconsistent_group_protocol)
        else:
            reply = Reply[SyncAnswer]()
            asked = SyncRequest(
                request.group_id,
                request.member_id,
                request.generation_id,
                field_of(request, "group_instance_id"),
                protocol_type,
                protocol_name,
                tuple((given.member_id, bytes(given.assignment)) for given in request.assignments),
            )
            self._coordinator.sync(asked, reply.give)
            answer = await reply.wait()
        return entities_of(self.api_key, version).make(
            "SyncGroupResponse",
            throttle_time=NO_THROTTLE,
            error_code=answer.error,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignment=answer.assignment,
        )


class Heartbeat:
    """A member shows that it is alive."""

    api_key: ClassVar[int] = 12
    versions: ClassVar[range] = range(5)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request."""
        error = self._coordinator.heartbeat(
            request.group_id, request.member_id, field_of(request, "group_instance_id"), request.generation_id
        )
        make = entities_of(self.api_key, context.api_version).make
        return make("HeartbeatResponse", throttle_time=NO_THROTTLE, error_code=error)


class LeaveGroup:
    """Members leave, or are made to leave by an administrator."""

    api_key: ClassVar[int] = 13
    versions: ClassVar[range] = range(6)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

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
        reply = Reply[tuple[ErrorCode, list[ErrorCode]]]()
        self._coordinator.leave(request.group_id, members, lambda error, each: reply.give((error, each)))
        error, errors = await reply.wait()
        if version < 3 and error is ErrorCode.none:
            [error] = errors
        make = entities_of(self.api_key, version).make
        told = ()
        if version >= 3:
            told = tuple(
                make("MemberResponse", member_id=member_id, group_instance_id=instance_id, error_code=its)
                for (member_id, instance_id, _), its in zip(members, errors, strict=False)
            )
        return make("LeaveGroupResponse", throttle_time=NO_THROTTLE, error_code=error, members=told)
