"""The APIs that write, which a read-only server refuses: with errors that no client tries again.

A client that sees an error of these kinds stops and says so; a client that finds the API missing would say that the
server is too old, and a producer would wait for a leader for minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.handling import Answer, Handler, RequestContext
from tierlog.broker.protocol.api_errors import ApiError, refusal
from tierlog.broker.protocol.entities import MadeElements, entities_of

TEXT: Final = "read-only replica"
#: The error text for a client of KIP-848. librdkafka waits for ever, silently, for a server that lacks the API.
CONSUMER_PROTOCOL_TEXT: Final = "group.protocol=consumer is not served here: set group.protocol=classic"


@dataclass(frozen=True, slots=True)
class RefusingHandler:
    """The handler that refuses one API, at all versions of it.

    Args:
        api_key: Kafka's number of the API.
        versions: That are answered.
        code: The error of all that the request names; ``none``: there is nothing to be listed.
        text: For APIs that have room for one.
    """

    api_key: int
    versions: range
    code: ErrorCode
    text: str = TEXT

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """Answer the refusal."""
        del context
        return refusal(request, self.code, self.text)


class _ProduceHandler(RefusingHandler):
    """The refusal of Produce. A producer that wants no answer learns it as from Kafka: the connection ends."""

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        if request.acks == 0:
            if not request.topic_data:
                return None
            raise ApiError(self.code, f"{TEXT}: a producer that waits for no answer")
        return await super().handle(request, context)


class _AlterScramHandler(RefusingHandler):
    """The refusal of AlterUserScramCredentials, which names users in two lists."""

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        entities = entities_of(self.api_key, context.api_version)
        users = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
        results = MadeElements(
            users,
            lambda user: entities.make(
                "AlterUserScramCredentialsResult", user=user, error_code=self.code, error_message=self.text
            ),
        )
        return entities.response(error_code=ErrorCode.none, error_message=None, results=results)


class _ListTransactionsHandler(RefusingHandler):
    """Lists no transaction, and names the filters that are no state of one."""

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        unknown = tuple(name for name in request.state_filters if name not in _TRANSACTION_STATES)
        return entities_of(self.api_key, context.api_version).response(
            error_code=self.code, unknown_state_filters=unknown, transaction_states=()
        )


#: Kafka's names of the states of a transaction.
_TRANSACTION_STATES: Final = frozenset(
    (
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
        *("Dead", "PrepareEpochFence"),
    )
)


def refusals() -> list[Handler]:
    """Make a handler for every API that writes and that clients may call. No bucket holds transactions' state, ACLs or
    reassignments: APIs that only list them answer none, as Kafka does for a cluster without any.
    """
    no_policy, none = ErrorCode.policy_violation, ErrorCode.none
    no_transaction, no_security = ErrorCode.transactional_id_authorization_failed, ErrorCode.security_disabled
    return [
        _ProduceHandler(0, range(3, 14), ErrorCode.topic_authorization_failed),
        RefusingHandler(19, range(2, 8), no_policy),  # CreateTopics
        RefusingHandler(20, range(1, 7), no_policy),  # DeleteTopics
        RefusingHandler(21, range(3), no_policy),  # DeleteRecords
        RefusingHandler(22, range(7), ErrorCode.cluster_authorization_failed),  # InitProducerId
        RefusingHandler(24, range(6), no_transaction),  # AddPartitionsToTxn
        RefusingHandler(25, range(5), no_transaction),  # AddOffsetsToTxn
        RefusingHandler(26, range(6), no_transaction),  # EndTxn
        RefusingHandler(28, range(6), no_transaction),  # TxnOffsetCommit
        RefusingHandler(29, range(1, 4), no_security),  # DescribeAcls
        RefusingHandler(30, range(1, 4), no_security),  # CreateAcls
        RefusingHandler(31, range(1, 4), no_security),  # DeleteAcls
        RefusingHandler(33, range(3), no_policy),  # AlterConfigs
        RefusingHandler(37, range(4), no_policy),  # CreatePartitions
        RefusingHandler(43, range(3), no_policy),  # ElectLeaders
        RefusingHandler(44, range(2), no_policy),  # IncrementalAlterConfigs
        RefusingHandler(45, range(2), no_policy),  # AlterPartitionReassignments
        RefusingHandler(46, range(1), none),  # ListPartitionReassignments
        RefusingHandler(48, range(2), none),  # DescribeClientQuotas
        RefusingHandler(49, range(2), no_policy),  # AlterClientQuotas
        _AlterScramHandler(51, range(1), no_policy),  # AlterUserScramCredentials
        RefusingHandler(57, range(3), no_policy),  # UpdateFeatures
        _ListTransactionsHandler(66, range(3), none),  # ListTransactions
        RefusingHandler(68, range(2), ErrorCode.unsupported_version, CONSUMER_PROTOCOL_TEXT),  # ConsumerGroupHeartbeat
        RefusingHandler(74, range(2), none),  # ListConfigResources
    ]
