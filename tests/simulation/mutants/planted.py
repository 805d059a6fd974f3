"""The planted faults: what each breaks, and the edit that plants it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.simulation.mutants.planting import MutantError

_MANAGER: Final = "tierlog.remote.manager"
_LOG: Final = "tierlog.log.local"
#: A branch is cut below what is committed, and copied, only by an unclean election, which one seed in two hundred has.
_UNCLEAN: Final = ("unclean election",)


class Edit(NamedTuple):
    """A text in a module that stands for another one, as often as is said."""

    module: str
    old: str
    new: str
    times: int = 1

    def apply(self, text: str) -> str:
        """Return a module's source with the edit. Raises MutantError: the place has gone."""
        found = text.count(self.old)
        if found != self.times:
            raise MutantError(f"{self.module}: {self.old!r} stands there {found} times, not {self.times}")
        return text.replace(self.old, self.new)


class Planted(NamedTuple):
    """One fault.

    Attributes:
        text: What goes wrong.
        is_kafkas: Whether Kafka 4.3.1 has it.
        also: Kinds of faults that all seeds have in which it is looked for; few seeds have them by themselves.
    """

    text: str
    edits: tuple[Edit, ...]
    is_kafkas: bool = False
    also: tuple[str, ...] = ()


def _one(
    module: str,
    old: str,
    new: str,
    text: str,
    *,
    times: int = 1,
    is_kafkas: bool = False,
    also: tuple[str, ...] = (),
) -> Planted:
    return Planted(text, (Edit(module, old, new, times),), is_kafkas, also)


#: By name: the manager's, then of replication, log, metadata, cleaner, storage manager.
PLANTED: Final[Mapping[str, Planted]] = {
    "local-deletion-before-finished": _one(
        f"{_LOG}.retention",
        "if upper > 0 and upper - 1 <= offsets.highest_offset_in_remote_storage:",
        "if upper > 0:",
        "local retention deletes what is not in the tier yet",
    ),
    "copied-offset-before-finished": _one(
        f"{_MANAGER}.segment_copies",
        "            custom = self._store(partition, metadata, begun.files)\n",
        "            partition.offsets.set_copied(log, begun.copied)\n"
        "            custom = self._store(partition, metadata, begun.files)\n",
        "the log hears of a copy before the copy has ended",
    ),
    "lineage-off-by-one": _one(
        f"{_MANAGER}.tiered_lineage",
        "return CopiedOffset(end - 1, entry.epoch)",
        "return CopiedOffset(end, entry.epoch)",
        "the copied offset reaches one record into the next epoch",
        also=_UNCLEAN,
    ),
    "lineage-test-off-by-one": _one(
        f"{_MANAGER}.tiered_lineage",
        "log_end_offset if known_next is None else known_next.start_offset,",
        "log_end_offset if known_next is None else known_next.start_offset + 1,",
        "what of a segment is the log's reaches one record into the next epoch",
        also=_UNCLEAN,
    ),
    "no-cut-at-epoch-border": _one(
        f"{_MANAGER}.tier_reads",
        "return min(end, tiered.log.log_end_offset)",
        "return segment.end_offset + 1",
        "reads of the tier return the branch that was given up",
        also=_UNCLEAN,
        is_kafkas=True,
    ),
    "id-reused-on-retry": Planted(
        "a copy that is tried again has the id of the failed one",
        (
            Edit(
                f"{_MANAGER}.segment_copies",
                "RemoteLogSegmentId.generate_new(topic_id_partition, rng=machine.rng)",
                "_ids.setdefault((topic_id_partition, segment.base_offset), "
                "RemoteLogSegmentId.generate_new(topic_id_partition, rng=machine.rng))",
            ),
            Edit(
                f"{_MANAGER}.segment_copies",
                "_STATE = RemoteLogSegmentState\n",
                "_STATE = RemoteLogSegmentState\n_ids: dict = {}\n",
            ),
        ),
    ),
    "copied-offset-not-lowered": _one(
        f"{_LOG}.log_contents",
        "self.copied = min(self.copied, offset - 1)",
        "pass",
        "a cut leaves the copied offset where it was",
        times=2,
        also=_UNCLEAN,
        is_kafkas=True,
    ),
    "copied-offset-not-clipped": _one(
        f"{_MANAGER}.tiered_lineage",
        "return CopiedOffset(end - 1, entry.epoch)",
        "return CopiedOffset(highest, entry.epoch)",
        "what another leader copied of an epoch counts beyond the epoch's end here",
        also=_UNCLEAN,
    ),
    "expiry-before-publishing": Planted(
        "segments are deleted before the log's new start is published",
        (
            Edit(
                f"{_MANAGER}.expirations",
                "        if start is not None:\n",
                "        if start is None:\n            start = 0\n        if False:\n",
            ),
            Edit(f"{_MANAGER}.expirations", "*plan.allowed(self._log_start),", "*plan.expired,"),
        ),
    ),
    "kafka-20732": Planted(
        "sizes are counted before the copied offset is known: local bytes count twice (KAFKA-20732)",
        (
            Edit(f"{_MANAGER}.expirations", "self._partition.offsets.require(self._services, self._log)", "pass"),
            Edit(
                f"{_MANAGER}.expirations",
                "self._copied_offset = log.highest_offset_in_remote_storage\n        segments",
                "self._copied_offset = log.log_end_offset\n        segments",
            ),
        ),
        is_kafkas=True,
    ),
    "late-upload-left": _one(
        f"{_MANAGER}.segment_copies",
        "            self._services.storage.delete_log_segment_data(metadata)\n        except",
        "            pass\n        except",
        "the objects of a copy that came late stay in the store",
        also=("stale copier",),
    ),
    "refused-finish-counts": _one(
        f"{_MANAGER}.segment_copies",
        "                    self._finish_failed(partition, metadata.create_with_updates(update), error)\n"
        "                raise\n",
        "                    pass\n"
        "                if not isinstance(error, InvalidTransitionError | RemoteResourceNotFoundException):\n"
        "                    raise\n",
        "a zombie's copy that the metadata refused counts as finished",
        also=("stale copier",),
    ),
    "lease-not-held": _one(
        f"{_MANAGER}.segment_copies",
        "                files = leased.enter_context(log.lease(candidate.segment))\n",
        "                files = leased.enter_context(log.lease(candidate.segment))\n                leased.close()\n",
        "a segment's files are not held for the copy",
    ),
    "folder-renamed-under-a-copy": _one(
        f"{_LOG}.segment_lease",
        "                return file.path\n",
        "                return path\n",
        "a copy reads by the paths of the log, whose segments retention and a rename of the folder take away",
        also=("log move", "stalls"),
    ),
    "pending-read-not-released": _one(
        f"{_MANAGER}.remote_reads",
        "        pending.on_end(partial(self._release, pending, reads, deadline))\n",
        "",
        "a remote read that has ended is never released",
    ),
    "aux-without-producers": _one(
        f"{_LOG}.log_contents",
        "        self.snapshots.install(start.offset, start.producer_snapshot)\n",
        "",
        "a log that begins from the tier knows no producers",
        also=("wipe",),
    ),
    "kafka-deletes-restored-snapshot": _one(
        f"{_LOG}.log_contents",
        "        self.snapshots.install(start.offset, start.producer_snapshot)\n",
        "        self.snapshots.install(start.offset, start.producer_snapshot)\n        self.snapshots.remove_all()\n",
        "a follower deletes the producer snapshot that it has just restored",
        also=("wipe",),
        is_kafkas=True,
    ),
    "candidate-above-stable": _one(
        f"{_LOG}.log_reads",
        "zip(segments, ends, strict=False) if end <= stable)",
        "zip(segments, ends, strict=False) if end <= stable + 1)",
        "a segment is copied that ends one above the last stable offset",
        also=("late markers",),
    ),
    "unfinished-never-go": _one(
        f"{_MANAGER}.expiry_plan",
        "        and each.event_timestamp_ms <= began_until_ms\n",
        "        and each.event_timestamp_ms <= -1\n",
        "copies that were given up stay for ever",
    ),
    "objects-before-state": _one(
        f"{_MANAGER}.segment_deletions",
        "        update = self.update_of(segment, _STATE.DELETE_SEGMENT_STARTED)\n        try:\n",
        "        update = self.update_of(segment, _STATE.DELETE_SEGMENT_STARTED)\n"
        "        self._services.storage.delete_log_segment_data(segment)\n        try:\n",
        "objects go while readers still find their segment",
    ),
    "size-rule-too-eager": _one(
        f"{_MANAGER}.expiry_plan",
        "or 0 < self._breached >= size:",
        "or 0 < self._breached:",
        "retention by size deletes one segment too many",
    ),
    # ---- replication
    "divergence-not-told": _one(
        "tierlog.replication.leader",
        "        if epoch < asked.last_fetched_epoch or end_offset < asked.offset:\n",
        "        if False:\n",
        "a leader does not tell followers that their logs diverge",
        also=("isolated leader",),
    ),
    "high-watermark-of-the-leader": _one(
        "tierlog.replication.in_sync_replicas",
        "                broker in self._maximal or self._is_about_to_join(follower, leader_end_offset, now_ms)\n",
        "                False\n",
        "the high watermark is the leader's end",
    ),
    "shrunk-before-the-controller": _one(
        "tierlog.replication.in_sync_replicas",
        "return self._propose(self._committed - lagging, maximal=self._committed)",
        "return self._propose(self._committed - lagging, maximal=self._committed - lagging)",
        "the high watermark no longer waits for a follower before the controller has taken it out of the in-sync set",
        also=("isolated leader",),
    ),
    "joins-too-early": _one(
        "tierlog.replication.in_sync_replicas",
        "        if follower.log_end_offset < max(high_watermark, epoch_start_offset):\n            return None\n",
        "",
        "a follower joins the in-sync set before it has caught up",
    ),
    "follower-commits-by-itself": _one(
        "tierlog.replication.follower",
        "        log.update_high_watermark(answer.high_watermark)\n",
        "        log.update_high_watermark(log.log_end_offset)\n",
        "a follower takes its own end for the high watermark",
    ),
    "epoch-not-begun": _one(
        "tierlog.replication.leader",
        "        self._log.assign_epoch_start_offset(leader_epoch, self._epoch_start_offset)\n",
        "",
        "a leadership does not begin its epoch at the log's end",
    ),
    "cut-to-high-watermark": _one(
        "tierlog.replication.follower",
        "        latest = self._log.leader_epoch_cache.latest_entry\n"
        "        return NO_EPOCH if latest is None else latest.epoch\n",
        "        return NO_EPOCH\n",
        "followers cut to their high watermark, as before leader epochs (KIP-101)",
    ),
    "diverged-follower-not-cut": _one(
        "tierlog.replication.follower",
        "                cut = min(own_end, end.end_offset, log_end)\n",
        "                cut = min(own_end, log_end)\n",
        "a follower does not cut what the leader has not of an epoch",
        also=("isolated leader",),
    ),
    # ---- the log
    "aborted-not-indexed": _one(
        f"{_LOG}.log_contents",
        "            if aborted:\n                local.active.append_aborted(aborted)\n",
        "",
        "aborted transactions are in no index",
    ),
    "epochs-not-cut": _one(
        f"{_LOG}.log_contents",
        "        self.epochs.truncate_from_end(offset)\n        self.local_start = min(self.local_start, offset)\n",
        "        self.local_start = min(self.local_start, offset)\n",
        "a cut leaves the epochs behind it",
        also=_UNCLEAN,
    ),
    "producers-not-cut": _one(
        f"{_LOG}.log_contents",
        "        self.restore_producers(offset)\n",
        "",
        "a cut leaves the producers as they were",
        also=("isolated leader",),
    ),
    "torn-tail-not-cut": _one(
        f"{_LOG}.recovery.log_loader",
        "        unflushed = self.segments.from_floor(self._recovery_point)\n",
        "        unflushed = ()\n",
        "a start after a power cut believes, unread, what was not synced",
    ),
    "flush-without-fsync": _one(
        f"{_LOG}.log_flusher",
        "                local.sync(segments, snapshots.files, known_before=before)\n",
        "                pass\n",
        "a flush moves the recovery point, and syncs nothing",
        also=("power cut",),
    ),
    "stable-without-unreplicated": _one(
        f"{_LOG}.producers.producer_state",
        "        if not self._unreplicated:\n            return undecided\n",
        "        return undecided\n",
        "the last stable offset passes a transaction whose marker is not replicated",
    ),
    "replay-stops-early": _one(
        f"{_LOG}.recovery.producer_replay",
        "        for segment in segments.between(producers.end_offset, up_to_offset):\n",
        "        for segment in segments.between(producers.end_offset, up_to_offset)[:-1]:\n",
        "producers of the last segment are not restored",
        also=("isolated leader",),
    ),
    # ---- metadata
    "own-event-not-awaited": _one(
        f"{_MANAGER}.segment_deletions",
        "            future.result(timeout_ms / 1000)\n",
        "            pass\n",
        "a state counts as stored before it is",
    ),
    "snapshot-ahead": _one(
        "tierlog.remote.metadata.topic_backed.consumer_task",
        "            self._consumed = saved.consumed\n",
        "            self._consumed = saved.consumed\n"
        "            for each in self._consumed.positions:\n"
        "                self._consumed.positions[each] += 1\n",
        "a start from the saved state passes over one record of each metadata partition",
    ),
    # ---- the cleaner
    "cleans-above-stable": _one(
        f"{_LOG}.compaction.cleanable_logs",
        "limits = [offsets.last_stable_offset, active.base_offset]",
        "limits = [active.base_offset]",
        "the cleaner takes what is not decided yet",
    ),
    "cleaner-knows-no-aborts": _one(
        f"{_LOG}.compaction.cleaner",
        "        transactions.add_aborted(self._aborted(first_dirty_offset, self._end))\n",
        "",
        "an aborted record displaces the last committed one of its key",
    ),
    "tombstones-go-at-once": _one(
        f"{_LOG}.compaction.cleaner",
        "delete_horizon_ms=self._now_ms + self._log.config.delete_retention_ms,",
        "delete_horizon_ms=self._now_ms,",
        "tombstones go with the next cleaning",
    ),
    "closed-segments-not-synced": _one(
        f"{_LOG}.local_log",
        "        if base_offset <= self.recovery_point or self.config.is_compacted:\n",
        "        if base_offset <= self.recovery_point:\n",
        "a power cut takes the end of a closed segment of a compacted log, where a hole looks like compaction's",
        is_kafkas=True,
        also=("stalls",),
    ),
    # ---- the storage manager
    "indexes-not-deleted": _one(
        "tierlog.remote.storage.copy.copied_segment",
        "        store.delete(removal.others)\n",
        "        store.delete(removal.others[:1])\n",
        "of a deleted segment the indexes stay",
    ),
    "cached-chunk-not-checked": _one(
        "tierlog.remote.storage.cache.disk_chunk_cache",
        "        if _digest(key, chunk) != digest:\n",
        "        if False:\n",
        "rotten bits of the chunk cache are served",
        also=("cache rot",),
    ),
}
