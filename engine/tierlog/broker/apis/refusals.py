"""The APIs that write, which a read-only server refuses: with errors that no client tries again.

A client that sees an error of these kinds stops and says so; one that finds the API missing would say that the server
is too old, and a producer would wait for a leader for minutes.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.protocol import ResponsePayload

from tierlog.broker.handling import Answer, Handler, RequestContext
from tierlog.broker.partitions import UNKNOWN
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.protocol.entities import Entities, MadeElements, entities_of, field_of

TEXT: Final = "read-only replica"
#: What a client of KIP-848 is told. librdkafka waits for ever, without a word, for a server that lacks the API.
CONSUMER_PROTOCOL_TEXT: Final = "group.protocol=consumer is not served here: set group.protocol=classic"

Refuse = Callable[[Any, Entities], ResponsePayload]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refuses one API, at all versions of it.

    Args:
        api_key: Kafka's number of the API.
        versions: That are answered.
        refuse: Makes the response to a request.
    """

    api_key: int
    versions: range
    refuse: Refuse

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """The refusal."""
        return self.refuse(request, entities_of(self.api_key, context.api_version))


class ProduceHandler:
    """Refuses Produce, each partition with TOPIC_AUTHORIZATION_FAILED."""

    api_key = 0
    versions = range(3, 14)

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """The refusal. A producer that wants no answer learns it as from Kafka: the connection ends.

        Raises:
            ApiError: TOPIC_AUTHORIZATION_FAILED: the request has acks=0 and records.
        """
        if request.acks == 0:
            if not request.topic_data:
                return None
            raise ApiError(ErrorCode.topic_authorization_failed, f"{TEXT}: a producer that waits for no answer")
        entities = entities_of(self.api_key, context.api_version)
        return entities.response(
            responses=MadeElements(
                request.topic_data,
                lambda topic: entities.make(
                    "TopicProduceResponse",
                    name=field_of(topic, "name"),
                    topic_id=field_of(topic, "topic_id"),
                    partition_responses=MadeElements(
                        topic.partition_data,
                        lambda partition: entities.make(
                            "PartitionProduceResponse",
                            index=partition.index,
                            error_code=ErrorCode.topic_authorization_failed,
                            base_offset=UNKNOWN,
                            record_errors=(),
                            error_message=TEXT,
                        ),
                    ),
                ),
            )
        )


def refusals() -> list[Handler]:
    """A handler for every API that writes and that clients may call."""
    return [ProduceHandler(), *(Refusal(key, versions, refuse) for key, (versions, refuse) in _REFUSALS.items())]


_POLICY: Final = {"error_code": ErrorCode.policy_violation, "error_message": TEXT}


def _alone(error: ErrorCode, text: str = TEXT, **values: Any) -> Refuse:
    """A response that is one error."""
    return lambda _, entities: entities.response(error_code=error, error_message=text, **values)


def _nothing(**values: Any) -> Refuse:
    """A list of what there is none of."""
    return lambda _, entities: entities.response(error_code=ErrorCode.none, error_message=None, **values)


def _each(asked: str, answers: str, entity: str, *keys: str) -> Refuse:
    """One answer each: ``keys`` are the fields that name what it is about."""

    def refuse(request: Any, entities: Entities) -> ResponsePayload:
        return entities.response(
            error_code=ErrorCode.none,
            error_message=None,
            **{
                answers: MadeElements(
                    getattr(request, asked),
                    lambda one: entities.make(entity, **_POLICY, **{key: field_of(one, key) for key in keys}),
                )
            },
        )

    return refuse


@dataclass(frozen=True, slots=True)
class _EachPartition:
    """One answer a partition.

    Args:
        answers: The response's field.
        topic, partition: The names of the entities in it.
        partitions: The topic's field that holds them.
        number: A partition's field with its number.
        error: What each is told.
        values: Further fields of each.
    """

    answers: str
    topic: str
    partition: str
    partitions: str = "partitions"
    number: str = "partition_index"
    error: ErrorCode = ErrorCode.policy_violation
    values: tuple[tuple[str, Any], ...] = ()
    asked: str = "topics"

    def __call__(self, request: Any, entities: Entities) -> ResponsePayload:
        topics = self.refused(getattr(request, self.asked) or (), entities)
        return entities.response(**{"error_code": ErrorCode.none, "error_message": None, self.answers: topics})

    def refused(self, topics: Any, entities: Entities) -> MadeElements[Any]:
        """The answers for some topics of a request."""
        return MadeElements(
            topics,
            lambda topic: entities.make(
                self.topic,
                **{
                    name_field: getattr(topic, name_field)
                    for name_field in ("name", "topic")
                    if entities.has(self.topic, name_field)
                },
                **{self.partitions: MadeElements(topic.partitions, partial(self._refused, entities))},
            ),
        )

    def _refused(self, entities: Entities, partition: Any) -> Any:
        number = partition if isinstance(partition, int) else partition.partition_index
        errors = {"error_code": self.error, "partition_error_code": self.error, "error_message": TEXT}
        return entities.make(self.partition, **errors, **{self.number: number}, **dict(self.values))


_TRANSACTION_PARTITIONS: Final = _EachPartition(
    "results_by_topic_v3_and_below",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnPartitionResult",
    partitions="results_by_partition",
    error=ErrorCode.transactional_id_authorization_failed,
    asked="v3_and_below_topics",
)


def _add_partitions_to_txn(request: Any, entities: Entities) -> ResponsePayload:
    """From version 4 on brokers ask for many transactions at once."""
    if not entities.has("AddPartitionsToTxnResult"):
        return _TRANSACTION_PARTITIONS(request, entities)
    return entities.response(
        error_code=ErrorCode.none,
        results_by_transaction=MadeElements(
            request.transactions,
            lambda transaction: entities.make(
                "AddPartitionsToTxnResult",
                transactional_id=transaction.transactional_id,
                topic_results=_TRANSACTION_PARTITIONS.refused(transaction.topics, entities),
            ),
        ),
    )


def _create_topics(request: Any, entities: Entities) -> ResponsePayload:
    result = "CreatableTopicResult"
    return entities.response(
        topics=MadeElements(
            request.topics, lambda one: entities.make(result, **_POLICY, name=one.name, topic_id=None, configs=())
        )
    )


def _delete_topics(request: Any, entities: Entities) -> ResponsePayload:
    """Up to version 5 by names alone."""

    def refused(named: Any) -> Any:
        name, topic_id = (named, None) if isinstance(named, str) else (named.name, named.topic_id)
        return entities.make("DeletableTopicResult", **_POLICY, name=name, topic_id=topic_id)

    named = field_of(request, "topic_names") or field_of(request, "topics", ())
    return entities.response(responses=MadeElements(named, refused))


def _update_features(request: Any, entities: Entities) -> ResponsePayload:
    is_each = entities.has("UpdatableFeatureResult")  # up to version 1
    results = MadeElements(
        request.feature_updates if is_each else (),
        lambda one: entities.make("UpdatableFeatureResult", **_POLICY, feature=one.feature),
    )
    return entities.response(**_POLICY, results=results)


def _delete_acls(request: Any, entities: Entities) -> ResponsePayload:
    result = entities.make(
        "DeleteAclsFilterResult", error_code=ErrorCode.security_disabled, error_message=TEXT, matching_acls=()
    )
    return entities.response(filter_results=(result,) * len(request.filters))


def _create_acls(request: Any, entities: Entities) -> ResponsePayload:
    result = entities.make("AclCreationResult", error_code=ErrorCode.security_disabled, error_message=TEXT)
    return entities.response(results=(result,) * len(request.creations))


def _alter_client_quotas(request: Any, entities: Entities) -> ResponsePayload:
    return entities.response(
        entries=MadeElements(
            request.entries,
            lambda entry: entities.make(
                "EntryData",
                **_POLICY,
                entity=MadeElements(
                    entry.entity,
                    lambda one: entities.make("EntityData", entity_type=one.entity_type, entity_name=one.entity_name),
                ),
            ),
        )
    )


def _alter_scram_credentials(request: Any, entities: Entities) -> ResponsePayload:
    users = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    return entities.response(
        results=MadeElements(users, lambda user: entities.make("AlterUserScramCredentialsResult", **_POLICY, user=user))
    )


def _list_transactions(request: Any, entities: Entities) -> ResponsePayload:
    unknown = tuple(name for name in request.state_filters if name not in _TRANSACTION_STATES)
    return entities.response(error_code=ErrorCode.none, unknown_state_filters=unknown, transaction_states=())


#: Kafka's names of the states of a transaction.
_TRANSACTION_STATES: Final = frozenset(
    (
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
        *("Dead", "PrepareEpochFence"),
    )
)

#: API key -> its versions and what refuses it. No bucket holds transactions' state, ACLs or reassignments: what only
#: lists them says that there are none, as Kafka does of a cluster without any.
_REFUSALS: Final[dict[int, tuple[range, Refuse]]] = {
    19: (range(2, 8), _create_topics),
    20: (range(1, 7), _delete_topics),
    21: (
        range(3),
        _EachPartition(
            "topics",
            "DeleteRecordsTopicResult",
            "DeleteRecordsPartitionResult",
            values=(("low_watermark", UNKNOWN),),
        ),
    ),
    22: (range(7), _alone(ErrorCode.cluster_authorization_failed, producer_id=-1, producer_epoch=-1)),
    24: (range(6), _add_partitions_to_txn),
    25: (range(5), _alone(ErrorCode.transactional_id_authorization_failed)),
    26: (range(6), _alone(ErrorCode.transactional_id_authorization_failed)),
    28: (
        range(6),
        _EachPartition(
            "topics",
            "TxnOffsetCommitResponseTopic",
            "TxnOffsetCommitResponsePartition",
            error=ErrorCode.transactional_id_authorization_failed,
        ),
    ),
    29: (range(1, 4), _alone(ErrorCode.security_disabled, resources=())),
    30: (range(1, 4), _create_acls),
    31: (range(1, 4), _delete_acls),
    33: (range(3), _each("resources", "responses", "AlterConfigsResourceResponse", "resource_type", "resource_name")),
    37: (range(4), _each("topics", "results", "CreatePartitionsTopicResult", "name")),
    43: (
        range(3),
        _EachPartition(
            "replica_election_results",
            "ReplicaElectionResult",
            "PartitionResult",
            partitions="partition_result",
            number="partition_id",
            asked="topic_partitions",
        ),
    ),
    44: (range(2), _each("resources", "responses", "AlterConfigsResourceResponse", "resource_type", "resource_name")),
    45: (
        range(2),
        _EachPartition("responses", "ReassignableTopicResponse", "ReassignablePartitionResponse"),
    ),
    46: (range(1), _nothing(topics=())),
    48: (range(2), _nothing(entries=())),
    49: (range(2), _alter_client_quotas),
    51: (range(1), _alter_scram_credentials),
    57: (range(3), _update_features),
    66: (range(3), _list_transactions),
    68: (
        range(2),
        _alone(
            ErrorCode.unsupported_version,
            CONSUMER_PROTOCOL_TEXT,
            member_epoch=0,
            heartbeat_interval=datetime.timedelta(),
        ),
    ),
    74: (range(2), _nothing(config_resources=())),
}
