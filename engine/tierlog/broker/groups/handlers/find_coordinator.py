"""FindCoordinator: of every group it is this node; transactions have none."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.handlers.membership_handlers import NO_THROTTLE
from tierlog.broker.handling import RequestContext
from tierlog.broker.protocol.entities import MadeElements, entities_of, field_of

_GROUP: Final = 0
_TRANSACTION: Final = 1
_NO_NODE: Final = -1


class FindCoordinator:
    """Where groups are coordinated.

    Args:
        node_id: Of this node, as Metadata names it.
    """

    api_key: ClassVar[int] = 10
    versions: ClassVar[range] = range(7)

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Answer a request; from version 4 on for several keys at once."""
        make = entities_of(self.api_key, context.api_version).make
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
            return make("FindCoordinatorResponse", throttle_time=NO_THROTTLE, **told)
        coordinators = MadeElements(request.coordinator_keys, lambda key: make("Coordinator", key=key, **told))
        return make("FindCoordinatorResponse", throttle_time=NO_THROTTLE, coordinators=coordinators)

    @staticmethod
    def _refusal(key_type: int) -> tuple[ErrorCode, str | None]:
        """Why there is no coordinator of a type. None of the errors is one that clients retry."""
        if key_type == _GROUP:
            return ErrorCode.none, None
        if key_type == _TRANSACTION:  # producers end at this one; of others some ask again for ever
            return ErrorCode.transactional_id_authorization_failed, "read-only replica: there are no transactions"
        return ErrorCode.invalid_request, f"there is no coordinator of type {key_type}"
