"""Where Kafka's log and ours differ on purpose, by the rows of docs/local-log.md, and how to tell a row from a fault.

A row that a life meets is counted; nothing else may differ.
"""

from __future__ import annotations

import itertools
import pathlib
from typing import cast

from tests.support.log_peer import CORRUPT, files_of
from tests.support.log_turns import Told
from tierlog._native.batches import scan_batches
from tierlog.log.formats.producer_snapshot import ProducerEntry

REFUSED = "A refused append"
OVERLAP = "Overlapping batches of a leader"
WATERMARK = "A high watermark within a batch"
ABORTED = "Aborted transactions of a read"
GAP = "A segment behind missing offsets"
HOLE = "A hole in front of a segment after a crash"
OFFSETS = "A damaged base offset or magic"
DAMAGE = "A damaged batch below the recovery point"
EPOCHS = "Leader epochs of a log start that was lost"
PRODUCERS = "Producers after a recovery"
FALLEN = "Leader epochs that fall"
EMPTIED = "The greatest timestamp of an emptied batch"
NOBODY = "A transactional batch of no producer"
#: Random lives meet the rows up to here, and that of a tiered log's high watermark.
MET = (REFUSED, OVERLAP, WATERMARK, ABORTED, GAP, HOLE, OFFSETS, DAMAGE, EPOCHS, PRODUCERS, FALLEN, EMPTIED, NOBODY)
DELTA = "A negative last offset delta"
OLD_FORMAT = "Records of magic 0 and 1 to a leader"
FIRST_OFFSET = "The first offset of magic 0 and 1"
LOG_END = "An append past offset 2^63 − 2"
COPIED = "The copied offset"
TIER_WATERMARK = "The high watermark of a tiered log"
TIER_PRODUCERS = "Producers from the tier"
DUE = "A log that is due by `max.compaction.lag.ms`"
CUT_CHECKPOINT = "The cleaner's checkpoint of a log that is cut"
CLEANED_DAMAGE = "A damaged batch in a cleaning"
CLEANED_LEGACY = "The last batch of a cleaning, of magic 0 or 1, without records"
CLEANED_FILES = "What a failed cleaning wrote"
CUT_PRODUCERS = "Producers behind a cut"
_CLEANING = (DUE, CUT_CHECKPOINT, CLEANED_DAMAGE, CLEANED_LEGACY, CLEANED_FILES)
_TIER = (COPIED, TIER_WATERMARK, TIER_PRODUCERS)
ROWS = (*MET, DELTA, OLD_FORMAT, FIRST_OFFSET, LOG_END, *_TIER, *_CLEANING, CUT_PRODUCERS)


def is_of_damage(told: str, ours: str) -> bool:
    """Whether one of both answers that a batch is damaged, by any of Kafka's errors for that."""
    if told.split(" | ", maxsplit=1)[0] == ours.split(" | ", maxsplit=1)[0]:
        return False
    return ours.startswith(f"refused {CORRUPT}") or told.startswith(("refused 2 ", "refused 87 ", "refused -1 "))


def batches_overlap(words: tuple[object, ...]) -> bool:
    """Whether batches that a follower is sent begin in front of where those before end."""
    if words[0] != "follower":
        return False
    columns = scan_batches(bytes.fromhex(str(words[1])))[0]
    return any(columns["base_offset"][1:] <= columns["last_offset"][:-1])


def epochs_fall(words: tuple[object, ...]) -> bool:
    """Whether batches that a follower is sent are of an earlier epoch than those before."""
    if words[0] != "follower":
        return False
    epochs = scan_batches(bytes.fromhex(str(words[1])))[0]["leader_epoch"]
    return any(epochs[1:] < epochs[:-1])


def has_emptied_batch(folder: pathlib.Path) -> bool:
    """Whether a compaction left a batch without records."""
    return any((scan_batches(data)[0]["record_count"] == 0).any() for data in segments_of(folder).values())


def has_batch_of_nobody(folder: pathlib.Path) -> bool:
    """Whether a batch is of a transaction, and of no producer."""
    tables = [scan_batches(data)[0] for data in segments_of(folder).values()]
    return any(((table["attributes"] & 0x10 > 0) & (table["producer_id"] < 0)).any() for table in tables)


def lost_batches(told: str, ours: str) -> bool:
    """Whether a crash left a hole in front of a segment: ours then ends there, and Kafka's log keeps the hole."""
    theirs, mine = Told.of(told), Told.of(ours)
    behind = [base for base in theirs.bases if base >= mine.end]
    return (
        mine.end < theirs.end and bool(behind) and behind[0] > mine.end and theirs.bases[: -len(behind)] == mine.bases
    )


def has_damaged_offsets(segments: dict[int, bytes]) -> bool:
    """Whether offsets of sound batches fall, are another segment's, or lie too far from their segment's for an index,
    or a magic is of no format: no checksum covers them.
    """
    for (base, data), (behind, _) in itertools.pairwise([*sorted(segments.items()), (2**63, b"")]):
        columns, end, _, _ = scan_batches(data)
        if data[end + 16 : end + 17] > b"\2":
            return True
        ends = columns["last_offset"].tolist()
        if any(first < base for first in columns["base_offset"].tolist()):
            return True
        if any(last >= min(behind, base + 2**31) for last in ends) or any(
            next_ <= last for last, next_ in itertools.pairwise(ends)
        ):
            return True
    return False


def has_hole(segments: dict[int, bytes]) -> bool:
    """Whether offsets are missing between segments."""
    for (base, data), (behind, _) in itertools.pairwise(sorted(segments.items())):
        if max([base - 1, *scan_batches(data)[0]["last_offset"].tolist()]) + 1 < behind:
            return True
    return False


def was_flushed(told: str, ours: str) -> bool:
    """Whether a hole between segments stays, and ours was flushed up to the end for that."""
    theirs, mine = Told.of(told), Told.of(ours)
    return ours.startswith("open") and mine.recovery == mine.end > theirs.recovery and told.startswith("open")


def found_epochs(told: str, ours: str) -> bool:
    """Whether ours alone took the first epochs from the batches: a checkpoint cut to a log start that was lost."""
    theirs, mine = (answer.split("|") for answer in (told, ours))
    if [at for at, (one, other) in enumerate(zip(theirs, mine, strict=False)) if one != other] != [3]:
        return False
    known, found = (
        {int(epoch): int(start) for epoch, start in (entry.split(":") for entry in answer[3].split())}
        for answer in (theirs, mine)
    )
    # Of the first segment; or of the first that was recovered, where the batches in front of it were compacted away.
    began = min(found.values()) in Told.of(ours).bases
    later = min(known.values(), default=Told.of(ours).end)
    return (
        began
        and all(epoch in known or start < later for epoch, start in found.items())
        and all(found.get(epoch, start + 1) <= start for epoch, start in known.items())
    )


def segments_of(folder: pathlib.Path) -> dict[int, bytes]:
    return {int(path.stem): path.read_bytes() for path in folder.glob("*.log")}


def producers_in(snapshot: object) -> set[int]:
    entries = cast("list[ProducerEntry]", snapshot if isinstance(snapshot, list) else [])
    return {entry.producer_id for entry in entries}


def has_batch_within(folder: pathlib.Path, first: int, behind: int) -> bool:
    """Whether a batch has offsets of a range."""
    for data in segments_of(folder).values():
        columns = scan_batches(data)[0]
        if ((columns["base_offset"] < behind) & (columns["last_offset"] >= first)).any():
            return True
    return False


def is_begin_of_batch(folder: pathlib.Path, offset: int, *, seen_from: int) -> bool:
    """Whether the batch that an offset is in begins at another one; the next batch, if it is in none."""
    if offset > seen_from:
        return not has_batch_within(folder, seen_from, offset)
    for data in segments_of(folder).values():
        columns = scan_batches(data)[0]
        if ((columns["base_offset"] == offset) & (columns["last_offset"] >= seen_from)).any():
            return True
    return False


def snapshots_of(folder: pathlib.Path) -> list[int]:
    return [int(path.stem) for path in folder.glob("*.snapshot")]


def kept_producers(told: str, ours: str) -> bool:
    """Whether ours knows more of the producers, and nothing else differs: Kafka deleted snapshots of what is in the
    log, and has what the batches from the log start on tell. Or less: Kafka also replays what lies in front of the log
    start in the first segment, which a compaction may have joined with others.
    """
    if Told.find(told) is None or Told.find(ours) is None or told.split("|")[2:4] != ours.split("|")[2:4]:
        return False
    theirs, mine = Told.of(told), Told.of(ours)
    same = [(t.log_start, t.local_start, t.high, t.end, t.recovery, t.copied) for t in (theirs, mine)]
    known = [mine.producers.get(producer) for producer in theirs.producers]
    if theirs.log_start > theirs.bases[0]:
        known = [one or other for one, other in zip(known, theirs.producers.values(), strict=True)]
    return (
        theirs.producers != mine.producers
        and same[0] == same[1]
        and mine.stable <= theirs.stable
        and None not in known
        and all(one.epoch == other.epoch for one, other in zip(known, theirs.producers.values(), strict=True) if one)
    )


def differs_by_times(told: str, ours: str) -> bool:
    """Whether the times of producers alone differ: one log has them from a snapshot, the other from a batch that was
    damaged since.
    """
    parts = [answer.split("|") for answer in (told, ours)]
    return parts[0][:4] == parts[1][:4] and Told.of(told).producers == Told.of(ours).producers


def kept_snapshots(theirs: pathlib.Path, ours: pathlib.Path) -> bool:
    """Whether ours has snapshots, or producers in one, that Kafka deleted when it recovered, and no other differs."""
    left, kept = ({k: v for k, v in files_of(f).items() if k.endswith(".snapshot")} for f in (theirs, ours))
    unlike = {name for name in left | kept if left.get(name) != kept.get(name)}
    return bool(unlike) and all(
        name in kept and producers_in(left.get(name)) <= producers_in(kept[name]) for name in unlike
    )
