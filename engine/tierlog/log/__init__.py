"""Kafka's files on a broker's disk.

Rooms: ``formats`` (each file beside the ``.log``, parsed and written), ``checks`` (whether those files agree with the
log) and ``local`` (the living log: segments that grow, recovery, retention). ``partition_log`` has the interface by
which replication and the tier act on a log: ours, or one of another make.

Belongs here: what follows from a partition's files alone. Does not belong here: opening a store, deciding which
segments of a tier count (``remote.metadata``), or anything that a user reads (``cli``).
"""

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names

if TYPE_CHECKING:
    from tierlog.log import formats, local
    from tierlog.log.partition_log import PartitionConfig, PartitionEpochs, PartitionLog, PartitionSegment, RecordsPart
else:
    _NAMES = {
        "tierlog.log.partition_log": (
            "PartitionConfig",
            "PartitionEpochs",
            "PartitionLog",
            "PartitionSegment",
            "RecordsPart",
        ),
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES, modules=("formats", "local"))

__all__ = [
    "PartitionConfig",
    "PartitionEpochs",
    "PartitionLog",
    "PartitionSegment",
    "RecordsPart",
    "formats",
    "local",
]
