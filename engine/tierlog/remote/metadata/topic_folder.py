"""A copy of the metadata topic's files, read into a segment table: log directories of brokers, or folders in them.

Several brokers' folders add up, and replicas of one partition too: an offset that was applied is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from tierlog.errors import ConfigError
from tierlog.remote.metadata.batch_stream import iter_batch_runs, place_of
from tierlog.remote.metadata.topic_backed.metadata_log import METADATA_TOPIC, BatchRun
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.remote.tier.tier import Tier
from tierlog.remote.tier.tier_paths import open_tier
from tierlog.runtime.machine import Machine

#: Takes a run, with the name of the file that it is from.
Take = Callable[[BatchRun, str], None]


def read_topic_folders(paths: Sequence[str], take: Take, *, machine: Machine) -> dict[int, int]:
    """Read all records of the topic, to the end of what is there now.

    Args:
        paths: Log directories with folders of the topic, or such folders.
        take: Gets the batches of each metadata partition in order; those of a replica again from its first offset on.
        machine: Its files and clock.

    Returns:
        Metadata partition → the first offset that is there.

    Raises:
        ConfigError: a directory without such a folder, or a partition whose oldest records are gone: nothing can be
            concluded from it. CorruptDataError: a batch is damaged; names its place. StoreError and its kinds.
    """
    firsts: dict[int, int] = {}
    with ExitStack() as opened:
        # Each is opened when its turn comes: a log directory's end is that of its listing.
        for path in paths:
            found = _read_folder(opened.enter_context(open_tier(path, layout="log-dir", machine=machine)), take)
            for place, first in found.items():
                firsts[place] = min(first, firsts.get(place, first))
    trimmed = {place: first for place, first in firsts.items() if first > 0}
    if trimmed:
        told = ", ".join(f"{METADATA_TOPIC}-{place} begins at {first}" for place, first in sorted(trimmed.items()))
        raise ConfigError(f"the oldest metadata is gone ({told}): what it said of segments is not known")
    return firsts


def _read_folder(tier: Tier, take: Take) -> dict[int, int]:
    firsts: dict[int, int] = {}
    for segment in tier.iter_segments(METADATA_TOPIC):
        firsts.setdefault(segment.topic_id_partition.partition, segment.start_offset)
        for run in _iter_runs(tier, segment):
            take(run, place_of(segment))
    if not firsts:
        raise ConfigError(f"{tier.describe()}: no records of {METADATA_TOPIC} are there")
    return firsts


def _iter_runs(tier: Tier, segment: StoredSegment) -> Iterator[BatchRun]:
    for run in iter_batch_runs(tier, segment):
        next_offset = int(run.column("last_offset")[-1]) + 1
        yield BatchRun(segment.topic_id_partition.partition, next_offset, run.data)
