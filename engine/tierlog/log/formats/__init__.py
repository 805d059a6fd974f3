"""The files of Kafka's log beside the ``.log``: sparse indexes, producer snapshots, checkpoints, names.

What it is: one module a file format. Each parses given bytes, and writes bytes that Kafka accepts. Why: the tier, the
verifier, the exporter and the dump need the same facts and name the same faults.

Belongs here: bytes to values and back, with every rule that Kafka has for them. Does not belong here: opening a file,
or comparing one file with another (``log.checks``).

Source: ``org.apache.kafka.storage.internals.log`` and ``.checkpoint`` of Kafka 4.3; docs/formats/log-files.md.
"""

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names

if TYPE_CHECKING:
    from tierlog.log.formats.leader_epochs import EpochEntry, LeaderEpochs, encode_leader_epochs, parse_leader_epochs
    from tierlog.log.formats.producer_snapshot import (
        ProducerEntry,
        ProducerSnapshot,
        encode_producer_snapshot,
        parse_producer_snapshot,
    )
    from tierlog.log.formats.segment_indexes import OffsetIndex, TimeIndex, TransactionIndex
else:
    # The indexes need numpy, which a process that only reads a lineage does without.
    _NAMES = {
        "tierlog.log.formats.leader_epochs": (
            "EpochEntry",
            "LeaderEpochs",
            "encode_leader_epochs",
            "parse_leader_epochs",
        ),
        "tierlog.log.formats.producer_snapshot": (
            "ProducerEntry",
            "ProducerSnapshot",
            "encode_producer_snapshot",
            "parse_producer_snapshot",
        ),
        "tierlog.log.formats.segment_indexes": ("OffsetIndex", "TimeIndex", "TransactionIndex"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)

__all__ = [
    "EpochEntry",
    "LeaderEpochs",
    "OffsetIndex",
    "ProducerEntry",
    "ProducerSnapshot",
    "TimeIndex",
    "TransactionIndex",
    "encode_leader_epochs",
    "encode_producer_snapshot",
    "parse_leader_epochs",
    "parse_producer_snapshot",
]
