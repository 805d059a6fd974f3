"""The values that leaders and followers of a partition exchange, and the requests of a follower's machine.

A request carries the leader epoch in which it was made; its answer is given to the machine with the request itself,
so that an answer to a request of an earlier leadership changes nothing. How a broker puts these into requests of
Kafka's protocol, many partitions in one, is the broker's.

Source: Kafka Fetch, OffsetForLeaderEpoch, ListOffsets and AlterPartition requests; AbstractFetcherThread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple

from typing_extensions import Buffer

from tierlog.errors import TierlogError
from tierlog.log.fetch_data import Part_co
from tierlog.log.local.log_errors import KafkaError
from tierlog.log.partition_log import RecordsPart

#: No epoch is known; no offset is known.
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class ReplicationError(TierlogError, ValueError):
    """A request that this replica refuses, with Kafka's error. Nothing has changed.

    Attributes:
        error: Kafka's error, which the answer carries.
    """

    def __init__(self, message: str, error: KafkaError) -> None:
        super().__init__(message)
        self.error = error


class EpochEnd(NamedTuple):
    """The end of an epoch in a leader's log.

    Attributes:
        epoch: The largest epoch of the log at or below the one asked for; -1 = none is known.
        end_offset: First offset behind that epoch; -1 = not known.
    """

    epoch: int
    end_offset: int


class OffsetAndEpoch(NamedTuple):
    """An offset, and the leader epoch in which it was written; (-1, -1) = none."""

    offset: int
    epoch: int


# ---- requests of a follower


@dataclass(frozen=True, slots=True, eq=False)
class FetchRecords:
    """Fetch records from the leader.

    Attributes:
        leader_epoch: Of the leadership in which the follower asks.
        offset: The follower's log end offset.
        last_fetched_epoch: Epoch of the follower's last record; -1 = unknown, and the leader cannot find a divergence.
        log_start_offset: The follower's, for DeleteRecords' low watermark.
    """

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, eq=False)
class AskEpochEnd:
    """Ask the leader where an epoch ends (OffsetsForLeaderEpoch)."""

    leader_epoch: int
    epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class AskOffset:
    """Ask the leader for an offset by a special timestamp (ListOffsets): -1 latest, -2 earliest, -4 earliest local,
    -6 earliest pending upload.
    """

    leader_epoch: int
    timestamp: int


@dataclass(frozen=True, slots=True, eq=False)
class BuildAuxState:
    """Begin the log anew behind a segment of the tier: look up the segment that holds an offset in an epoch, fetch its
    leader epochs and its producer snapshot, and call ``start_from_tier`` of the log; or keep the log's records and call
    its ``complete_lineage``. Executed by the RemoteLogManager, on no fetcher's, request's or event loop's thread. A
    request of a follower, and an action of a leader whose own log must be rebuilt.

    Attributes:
        leader_epoch: Of the leadership in which it is asked for.
        epoch: In which the offset was written; -1 = not known.
        offset: Last offset that must come from the tier.
        log_start_offset: The leader's log start.
        keeps_records: Whether the log has records behind that offset, all of them the leader's or to be cut by the next
            fetch: they stay, and only their lineage is completed.
        end_offset_max: Where the log begins at the latest, behind ``offset``, though the segment goes on: the leader's
            log goes on otherwise there. None: behind the segment.
    """

    leader_epoch: int
    epoch: int
    offset: int
    log_start_offset: int
    keeps_records: bool = False
    end_offset_max: int | None = None


FollowerRequest = FetchRecords | AskEpochEnd | AskOffset | BuildAuxState


# ---- answers


@dataclass(frozen=True, slots=True)
class FetchedRecords(Generic[Part_co]):
    """A leader's answer to a follower's ``FetchRecords``: of slices of its log, which a broker sends without a copy; of
    buffers as the follower receives it.

    Attributes:
        high_watermark: The leader's.
        log_start_offset: The leader's.
        records: Parts of whole batches, one behind the other; a part may end within a batch that the next one goes on
            with. A last batch that is cut off is left out by the follower.
        diverging: Where the follower's last epoch ends in the leader's log, if that is below the follower's log end;
            None: the logs agree up to the offset asked for. With it there are no records.
    """

    high_watermark: int
    log_start_offset: int
    records: Sequence[Part_co] = ()
    diverging: EpochEnd | None = None

    def read(self: FetchedRecords[RecordsPart]) -> FetchedRecords[Buffer]:
        """Read the slices: the answer as the follower receives it, for a driver without a network.

        Raises:
            LogTruncatedError: the leader's log was cut meanwhile: no answer. StoreError.
        """
        records = [part.read() for part in self.records]
        return FetchedRecords(self.high_watermark, self.log_start_offset, records, self.diverging)


class AuxStateBuilt(NamedTuple):
    """The log was begun anew from the tier, or its lineage was completed.

    Attributes:
        next_offset: Where it ends now.
    """

    next_offset: int


FollowerAnswer = FetchedRecords[Buffer] | EpochEnd | OffsetAndEpoch | AuxStateBuilt


# ---- leadership


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The state of a partition, by the controller (Kafka's LeaderAndIsr).

    Attributes:
        leader_epoch: Rises with every election.
        partition_epoch: Rises with every change of the partition, also of the in-sync set.
        replicas: Broker ids.
        in_sync_replicas: Broker ids, a part of ``replicas``.
    """

    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class AlterPartition:
    """Ask the controller for another in-sync set.

    Attributes:
        in_sync_replicas: (broker id, broker epoch; -1 = not checked), ascending.
    """

    leader_epoch: int
    partition_epoch: int
    in_sync_replicas: tuple[tuple[int, int], ...]
