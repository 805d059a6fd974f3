"""The meaning of librdkafka's errors for a caller: retriable, a missing right, an unknown topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from tierlog.errors import ConfigError, ObjectNotFoundError, StoreError, StorePermissionError, StoreUnavailableError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class PositionOutOfRangeError(StoreError):
    """No broker has the offset that was to be read: older records are gone, or newer ones never came.

    Attributes:
        partition: Of the topic.
        offset: Which was asked for.
    """

    def __init__(self, text: str, *, partition: int = -1, offset: int = -1) -> None:
        super().__init__(text)
        self.partition = partition
        self.offset = offset


class TopicExistsError(StoreError):
    """A topic of that name is there already."""


class ClientClosedError(StoreError):
    """The client is closed, or was closed while the call was under way: a record may have been written."""


class ClientFatalError(StoreError):
    """librdkafka gave the client up: open another one."""

    retriable: ClassVar[bool] = False


#: By the names of confluent_kafka.KafkaError: those with "_" in front arise on this side.
PERMISSION: Final = frozenset({
    "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE", "_AUTHENTICATION",
    "SECURITY_DISABLED", "DELEGATION_TOKEN_AUTHORIZATION_FAILED", "DELEGATION_TOKEN_EXPIRED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
})  # fmt: skip
_NOT_THERE: Final = frozenset({
    "UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "INCONSISTENT_TOPIC_ID",
})  # fmt: skip
_OUT_OF_RANGE: Final = frozenset({"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET", "_LOG_TRUNCATION"})
_CONFIG: Final = frozenset({
    "INVALID_CONFIG", "INVALID_PARTITIONS", "POLICY_VIOLATION",
    "INVALID_REPLICA_ASSIGNMENT", "_INVALID_ARG", "_UNSUPPORTED_FEATURE", "_NOT_CONFIGURED",
})  # fmt: skip
_RETRIABLE: Final = frozenset({
    # the cluster changes, or is not whole (not all brokers of a new one are there)
    "INVALID_REPLICATION_FACTOR",
    "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_CONTROLLER", "PREFERRED_LEADER_NOT_AVAILABLE",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE",
    "STALE_CTRL_EPOCH", "STALE_BROKER_EPOCH", "LISTENER_NOT_FOUND", "KAFKA_STORAGE_ERROR", "REASSIGNMENT_IN_PROGRESS",
    "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "REBOOTSTRAP_REQUIRED",
    # it is slow, or wants us to be
    "REQUEST_TIMED_OUT", "THROTTLING_QUOTA_EXCEEDED", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_QUEUE_FULL",
    # it is not reached
    "NETWORK_EXCEPTION", "_TRANSPORT", "_RESOLVE", "_ALL_BROKERS_DOWN", "_UNKNOWN_BROKER", "_DESTROY_BROKER",
    "_NOENT",  # no leader is known: all brokers are away, perhaps
    "_WAIT_CACHE", "_WAIT_COORD", "_RETRY", "_IN_PROGRESS", "_PREV_IN_PROGRESS", "_INTR", "_PARTIAL", "_OUTDATED",
    # a request or an answer came damaged
    "INVALID_MSG", "_BAD_MSG", "FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH",
    # a producer's identity, of which librdkafka takes a new one
    "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING",
})  # fmt: skip
_PURGED: Final = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT", "_DESTROY"})


def our_error(what: str, found: KafkaError, *, partition: int = -1, offset: int = -1) -> Exception:
    """Make the error of ours for one of librdkafka's; to be raised. ``what`` failed, for the message."""
    name, text = found.name(), f"{what}: {found.str()} ({found.name()})"
    if name in _OUT_OF_RANGE:
        return PositionOutOfRangeError(text, partition=partition, offset=offset)
    if found.fatal() or name in ("_FATAL", "_FENCED", "PRODUCER_FENCED"):
        return ClientFatalError(text)
    if name == "TOPIC_ALREADY_EXISTS":
        return TopicExistsError(text)
    if name in PERMISSION:
        return StorePermissionError(text)
    if name in _NOT_THERE:
        return ObjectNotFoundError(text)
    if name in _CONFIG:
        return ConfigError(text)
    if name in _PURGED:
        return ClientClosedError(f"{what}: the client was closed")
    if name in _RETRIABLE or found.retriable():
        return StoreUnavailableError(text)
    return StoreError(text)


def names_a_group(found: KafkaError) -> bool:
    """Whether the error is about the consumer group, which no reader of ours uses: librdkafka asks for its coordinator
    all the same.
    """
    return found.name() in ("GROUP_AUTHORIZATION_FAILED", "INVALID_GROUP_ID", "GROUP_ID_NOT_FOUND")
