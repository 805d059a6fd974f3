"""The ids under which a server tells clients of itself: cluster, node, rack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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


#: AclOperation's numbers of what a read-only server lets anybody do, as bits.
_READ, _DESCRIBE, _DESCRIBE_CONFIGS = 1 << 3, 1 << 8, 1 << 10
TOPIC_OPERATIONS: Final = _READ | _DESCRIBE | _DESCRIBE_CONFIGS
CLUSTER_OPERATIONS: Final = _DESCRIBE | _DESCRIBE_CONFIGS
#: What stands in the field when the client did not ask.
OPERATIONS_NOT_ASKED: Final = -(2**31)
