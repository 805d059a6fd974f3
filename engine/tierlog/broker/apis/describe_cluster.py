"""DescribeCluster: the one node that there is, and what a client may do with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.protocol.entities import entities_of, field_of

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
#: AclOperation's numbers of what a read-only server lets anybody do, as bits.
_READ, _DESCRIBE, _DESCRIBE_CONFIGS = 1 << 3, 1 << 8, 1 << 10
TOPIC_OPERATIONS: Final = _READ | _DESCRIBE | _DESCRIBE_CONFIGS
CLUSTER_OPERATIONS: Final = _DESCRIBE | _DESCRIBE_CONFIGS
#: What stands in the field when the client did not ask.
OPERATIONS_NOT_ASKED: Final = -(2**31)


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What the answers about the cluster say of the one node that it has.

    Args:
        cluster_id: Of the cluster that clients see: one of the server's own, unless it was told another.
        node_id: Of this node, which leads all partitions and is the controller that clients know.
        rack: Where the node stands; None if nobody said so.
    """

    cluster_id: str
    node_id: int = 0
    rack: str | None = None


class DescribeClusterHandler:
    """Answers DescribeCluster.

    Args:
        identity: Who this node is.
    """

    api_key: ClassVar[int] = 60
    versions: ClassVar[range] = range(3)

    def __init__(self, identity: ServerIdentity) -> None:
        self._identity = identity

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """The one node; MISMATCHED_ENDPOINT_TYPE for one who looks for controllers."""
        identity, entities = self._identity, entities_of(self.api_key, context.api_version)
        endpoint_type = field_of(request, "endpoint_type", _BROKERS)
        error, text = _endpoint_error(endpoint_type)
        broker = entities.make(
            "DescribeClusterBroker",
            broker_id=identity.node_id,
            host=context.advertised_host,
            port=context.advertised_port,
            rack=identity.rack,
            is_fenced=False,
        )
        asked = request.include_cluster_authorized_operations
        return entities.response(
            error_code=error,
            error_message=text,
            endpoint_type=_BROKERS,
            cluster_id=identity.cluster_id if text is None else "",
            controller_id=identity.node_id if text is None else -1,
            brokers=(broker,) if text is None else (),
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked and text is None else OPERATIONS_NOT_ASKED,
        )


def _endpoint_error(endpoint_type: int) -> tuple[ErrorCode, str | None]:
    if endpoint_type == _BROKERS:
        return ErrorCode.none, None
    if endpoint_type == _CONTROLLERS:
        return ErrorCode.mismatched_endpoint_type, "this is a broker's endpoint, and controllers were asked for"
    return ErrorCode.unsupported_endpoint_type, f"there is no endpoint type {endpoint_type}"
