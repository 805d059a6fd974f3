"""DescribeCluster: the one node, and the operations that a client may call on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.protocol.entities import entities_of, field_of

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
#: Bits of AclOperation's numbers: the operations of a read-only server.
_READ, _DESCRIBE, _DESCRIBE_CONFIGS = 1 << 3, 1 << 8, 1 << 10
TOPIC_OPERATIONS: Final = _READ | _DESCRIBE | _DESCRIBE_CONFIGS
CLUSTER_OPERATIONS: Final = _DESCRIBE | _DESCRIBE_CONFIGS
#: What stands in the field when the client did not ask.
OPERATIONS_NOT_ASKED: Final = -(2**31)


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The identity of the cluster's one node in answers.

    Args:
        cluster_id: Of the cluster that clients see: the server's own id, unless another is configured.
        node_id: Of this node, which leads all partitions and is the controller that clients know.
        rack: The node's rack; None if not configured.
    """

    cluster_id: str
    node_id: int = 0
    rack: str | None = None


class DescribeClusterHandler:
    """The handler of DescribeCluster.

    Args:
        identity: This node's identity.
    """

    api_key: ClassVar[int] = 60
    versions: ClassVar[range] = range(3)

    def __init__(self, identity: ServerIdentity) -> None:
        self._identity = identity

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """Answer the one node; MISMATCHED_ENDPOINT_TYPE to a client that looks for controllers."""
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
