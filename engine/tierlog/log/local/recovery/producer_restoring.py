"""Producers' state restored from the newest snapshot and the log behind it."""

from __future__ import annotations

from tierlog.log.local.producers.producer_snapshots import ProducerSnapshots
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.log.local.segments.log_segments import LogSegments


def restore_producers(
    *,
    segments: LogSegments,
    producers: ProducerState,
    snapshots: ProducerSnapshots,
    log_start_offset: int,
    up_to_offset: int,
    now_ms: int,
) -> None:
    """Let the producers be as they were at an offset: of a log that was cut there (Kafka rebuildProducerState).

    Snapshots that lie outside of the log are deleted, the newest of the others is loaded, and the batches from there on
    are replayed, which needs no checksum.

    Raises:
        CorruptRecordError: the log cannot be read. StoreError.
    """
    raise NotImplementedError
