"""Synthetic buckets in the Aiven layout, from scripted batches: branches, duplicates, transactions, damage.

The fixtures hold what real systems wrote; these buckets hold what real systems write only after bad luck.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.batches import Batch
from tests.support.segments import make_segment, topic_uuid
from tierlog.remote.tier.chunks.key_ring import KeyRing


@dataclass
class Bucket:
    """Writes segments of one partition below ``root`` as the plugin does: .log, .indexes, manifest last."""

    root: pathlib.Path
    topic: str = "orders"
    partition: int = 0
    topic_id: str = ""
    prefix: str = ""
    chunk_size: int = 1 << 16
    index_interval_bytes: int = 0
    keys: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topic_id = self.topic_id or topic_uuid(self.topic)

    def segment(
        self,
        name: str,
        batches: Sequence[Batch],
        *,
        lineage: dict[int, int],
        compression: bool = False,
        key_ring: KeyRing | None = None,
        event_timestamp_ms: int = 0,
        **more: Any,
    ) -> str:
        """Write one segment and return its key without the suffix; ``more``: see ``make_segment``."""
        made = make_segment(
            batches,
            topic=self.topic,
            partition=self.partition,
            topic_id=self.topic_id,
            name=name,
            lineage=lineage,
            event_timestamp_ms=event_timestamp_ms,
            index_interval_bytes=self.index_interval_bytes,
            **more,
        )
        stored = made.stored(chunk_size=self.chunk_size, compression=compression, key_ring=key_ring, prefix=self.prefix)
        stored.put_in(self.root)
        self.keys[name] = stored.base
        return stored.base

    def path(self, name: str, suffix: str) -> pathlib.Path:
        """The file of a segment's object: suffix "log", "indexes" or "rsm-manifest"."""
        return self.root / f"{self.keys[name]}.{suffix}"
