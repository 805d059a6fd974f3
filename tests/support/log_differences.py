"""Where Kafka's log and ours differ on purpose, by the rows of docs/local-log.md, and how to tell a row from a fault.

A row that a life meets is counted; nothing else may differ.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast
from unittest.mock import patch

from tests.support.log_peer import ABORTED_ENTRY, CORRUPT, files_of
from tests.support.log_turns import Told
from tierlog._native.appends import find_marker
from tierlog._native.batches import scan_batches
from tierlog.arguments import INT64_MAX
from tierlog.errors import CorruptIndexError
from tierlog.log.formats.producer_snapshot import ProducerEntry, parse_producer_snapshot
from tierlog.log.formats.segment_indexes import TransactionIndex
from tierlog.log.local.compaction.cleaner import _Cleaning
from tierlog.log.local.producers.producer_state import AbortedTransaction
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.batch_table import CONTROL, TRANSACTIONAL

REFUSED = "A refused append"
OVERLAP = "Overlapping batches of a leader"
WATERMARK = "A high watermark within a batch"
ABORTED = "Aborted transactions of a read"
GAP = "A segment behind missing offsets"
HOLE = "A hole in front of a segment after a crash"
OFFSETS = "A damaged base offset or magic"
DAMAGE = "A damaged batch below the recovery point"
LATER_INDEX = "A transaction index of a later version"
EPOCHS = "Leader epochs of a log start that was lost"
PRODUCERS = "Producers after a recovery"
FALLEN = "Leader epochs that fall"
EMPTIED = "The greatest timestamp of an emptied batch"
NOBODY = "A transactional batch of no producer"
ENDED = "Aborted transactions of a cleaning"
STARTS = "A tiered log's start after two crashes"
COMPACTED = "Transactions that a compaction took"
#: Random lives meet the rows up to here, and that of a tiered log's high watermark.
MET = (
    REFUSED,
    OVERLAP,
    WATERMARK,
    ABORTED,
    GAP,
    HOLE,
    OFFSETS,
    DAMAGE,
    LATER_INDEX,
    EPOCHS,
    PRODUCERS,
    FALLEN,
    EMPTIED,
    NOBODY,
    ENDED,
    STARTS,
)
DELTA = "A negative last offset delta"
FULL_INDEX = "Several batches that an index has no room for"
OLD_FORMAT = "Records of magic 0 and 1 to a leader"
FIRST_OFFSET = "The first offset of magic 0 and 1"
LOG_END = "An append past offset 2^63 − 2"
LARGE = "More than a segment to a follower"
COPIED = "The copied offset"
TIER_WATERMARK = "The high watermark of a tiered log"
TIER_PRODUCERS = "Producers from the tier"
DUE = "A log that is due by `max.compaction.lag.ms`"
CUT_CHECKPOINT = "The cleaner's checkpoint of a log that is cut"
CLEANED_DAMAGE = "A damaged batch in a cleaning"
CLEANED_LEGACY = "The last batch of a cleaning, of magic 0 or 1, without records"
CLEANED_FILES = "What a failed cleaning wrote"
CUT_PRODUCERS = "Producers behind a cut"
HIDDEN = "Two transactions of a producer in one fetch"
FENCED = "The marker that a compaction left without its record"
CLEANED_LAST = "The last batch of a producer in a cleaning"
_CLEANING = (DUE, CUT_CHECKPOINT, CLEANED_DAMAGE, CLEANED_LEGACY, CLEANED_FILES, CLEANED_LAST)
_TIER = (COPIED, TIER_WATERMARK, TIER_PRODUCERS)
_TRANSACTIONS = (COMPACTED, CUT_PRODUCERS, HIDDEN, FENCED)
ROWS = (*MET, DELTA, FULL_INDEX, OLD_FORMAT, FIRST_OFFSET, LOG_END, LARGE, *_TIER, *_CLEANING, *_TRANSACTIONS)


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


def collects_ended(folder: pathlib.Path, first_dirty: int, *, log_start: int) -> bool:
    """Whether aborted transactions that Kafka's cleaner collects, or does not, may make a batch another's: one that
    ended in front of the dirty part, of a producer that has a batch behind which was not aborted; or one that ended in
    front of the log start.
    """
    segments = segments_of(folder)
    if any(entry.last_offset < log_start for base in segments for entry in _aborted_in(folder, base)):
        return True
    begun = max(base for base in segments if base <= first_dirty)
    ended = {entry.producer_id for entry in _aborted_in(folder, begun) if entry.last_offset < first_dirty}
    known = [entry for base in segments if base >= begun for entry in _aborted_in(folder, base)]
    for _, data in sorted(segments.items()):
        table = scan_batches(data)[0]
        for row in (table["last_offset"] >= first_dirty).nonzero()[0].tolist():
            producer, offset = int(table["producer_id"][row]), int(table["base_offset"][row])
            attributes = int(table["attributes"][row])
            if producer not in ended or not attributes & (TRANSACTIONAL | CONTROL):
                continue
            if attributes & CONTROL:
                marker = find_marker(memoryview(data)[int(table["position"][row]) :])
                ended -= {producer} if marker is not None and not marker.is_commit else set()
            elif not any(entry[0] == producer and entry.first_offset <= offset <= entry.last_offset for entry in known):
                return True
    return False


def row_of_cleaning(told: str, ours: str, folder: pathlib.Path) -> str | None:
    """The row by which both answers of a cleaning differ, if it is one that the log before it tells."""
    if told != ours and hides_aborted(folder):
        return HIDDEN
    return NOBODY if told.startswith("refused -1") and has_batch_of_nobody(folder) else None


def hides_aborted(folder: pathlib.Path) -> bool:
    """Whether an aborted transaction's entry has a stable offset behind the begin of its producer's next one."""
    entries = [entry for base in segments_of(folder) for entry in _aborted_in(folder, base)]
    return any(
        one.producer_id == other.producer_id and one.last_offset < other.first_offset < one.last_stable_offset
        for one in entries
        for other in entries
    )


def _aborted_in(folder: pathlib.Path, base: int) -> list[AbortedTransaction]:
    path = folder / f"{base:020d}.txnindex"
    if not path.exists():
        return []
    return [AbortedTransaction._make(row) for row in TransactionIndex(path.read_bytes()).entries().tolist()]


@contextlib.contextmanager
def collecting_ended() -> Iterator[None]:
    """Have cleanings of ours collect the aborted transactions that Kafka's collect: all from the log start on."""

    def aborted(cleaning: _Cleaning, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        log, found = cleaning._log, list[AbortedTransaction]()
        for segment in log.log_segments(from_offset, INT64_MAX):
            entries, is_complete = segment.collect_aborted_entries(
                fetch_offset=log.offsets.log_start_offset, upper_bound_offset=to_offset
            )
            found += entries
            if is_complete:
                break
        return found

    with patch.object(_Cleaning, "_aborted", aborted):
        yield


@contextlib.contextmanager
def keeping_last() -> Iterator[None]:
    """Have cleanings of ours leave each producer's last batch of the log, as Kafka's do, though it may be cut."""
    with patch.object(UnifiedLog, "last_records_of_producers", lambda log: log._contents.producers.last_records()):
        yield


def lost_batches(told: str, ours: str) -> bool:
    """Whether a crash left a hole in front of a segment: ours then ends there, and Kafka's log keeps the hole."""
    theirs, mine = Told.of(told), Told.of(ours)
    behind = theirs.bases[len(mine.bases) :]
    return (
        mine.end < theirs.end
        and bool(behind)
        and behind[0] > mine.end
        and theirs.bases[: len(mine.bases)] == mine.bases
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


def is_watermark_of_damage(told: str, ours: str, folder: pathlib.Path) -> bool:
    """Whether Kafka's high watermark alone differs, which moved behind the log's end, to the damaged base offset of the
    batch that it is in.
    """
    theirs, mine = Told.of(told), Told.of(ours)
    return (
        theirs.high > theirs.end
        and told.split(" | ", maxsplit=1)[0] == ours.split(" | ", maxsplit=1)[0]
        and replace(theirs, high=mine.high, stable=mine.stable) == mine
        and any((scan_batches(data)[0]["base_offset"] == theirs.high).any() for data in segments_of(folder).values())
    )


def has_later_transaction_index(folder: pathlib.Path) -> bool:
    """Whether Kafka's check of a transaction index comes to an entry of a version above 0."""
    for path in folder.glob("*.txnindex"):
        data, base_offset = path.read_bytes(), int(path.stem)
        for at in range(0, len(data) - ABORTED_ENTRY.size + 1, ABORTED_ENTRY.size):
            version, _, _, last_offset, _ = ABORTED_ENTRY.unpack_from(data, at)
            if version > 0:
                return path.with_suffix(".log").exists()
            if last_offset < base_offset:
                break  # which it takes for damage, and builds the index anew
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


def is_of_before(told: str, ours: str, word: bytes, *, checkpoint: int) -> bool:
    """Whether ours alone believes its older word on the log's start: the checkpoint may be of the log of before."""
    if b'"state":"started"' not in word or Told.find(told) is None or Told.find(ours) is None:
        return False
    known, theirs, mine = json.loads(word.split(b"\n")[0]), Told.of(told), Told.of(ours)
    is_old = mine.log_start == known["log_start_offset"] < checkpoint <= known["superseded_offset"]
    return is_old and theirs == replace(mine, log_start=theirs.log_start)


def rows_of_recovery(told: str, ours: str, folder: pathlib.Path, *, rebuilt: bool, is_damaged: bool) -> list[str]:
    """The rows by which both answers of an opening differ: one for the epochs, one for the producers. None where
    something else differs too.

    Args:
        told: Kafka's answer.
        ours: Ours.
        folder: Of our log.
        rebuilt: Whether Kafka deleted producer snapshots of what is in the log.
        is_damaged: Whether a batch was damaged.
    """
    if Told.find(told) is None or Told.find(ours) is None:
        return []
    theirs, mine = Told.of(told), Told.of(ours)
    left, right = (answer.split(" |") for answer in (told, ours))
    may_differ = {"stable": 0, "epoch": 0, "producers": {}}
    if left[2] != right[2] or replace(theirs, **may_differ) != replace(mine, **may_differ):
        return []
    found = []
    if left[3] != right[3]:
        found += [EPOCHS] if found_epochs(left[3], right[3], folder, log_start=mine.log_start) else [""]
    if left[4] != right[4] or theirs.stable != mine.stable:
        if rebuilt and kept_producers(told, ours, folder):
            found.append(PRODUCERS)
        else:
            found += [DAMAGE] if is_damaged and differs_by_times(told, ours) else [""]
    return [] if "" in found else found


def found_epochs(told: str, ours: str, folder: pathlib.Path, *, log_start: int) -> bool:
    """Whether ours alone took the first epochs from the batches: a checkpoint cut to a log start that was lost."""
    known, found = ({int(e): int(start) for e, start in (w.split(":") for w in part.split())} for part in (told, ours))
    segments = segments_of(folder)
    later = min(known.values(), default=2**63)
    read = _rising_epochs(segments, log_start)
    front = {epoch: start for epoch, start in read.items() if start < later}
    return (
        (found in (read, known | front))
        and all(epoch in known or start < later for epoch, start in found.items())
        and all(found.get(epoch, start + 1) <= start for epoch, start in known.items())
    )


def _rising_epochs(segments: dict[int, bytes], log_start: int) -> dict[int, int]:
    """The epochs that begin in the batches of the segments, cut to the log start."""
    found: dict[int, int] = {}
    for _, data in sorted(segments.items()):
        table = scan_batches(data)[0]
        for epoch, offset in zip(table["leader_epoch"].tolist(), table["base_offset"].tolist(), strict=True):
            if epoch > max(found, default=-1):
                found[epoch] = offset
    first = max((epoch for epoch, offset in found.items() if offset <= log_start), default=-1)
    return {epoch: max(offset, log_start) for epoch, offset in found.items() if epoch >= first}


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


def with_compacted_ended(told: str, ours: str, folder: pathlib.Path) -> str:
    """Kafka's answer without the transactions that are open there, from a snapshot, and not here or from a later offset
    on, and of which a compaction has left nothing in the log.
    """
    theirs, mine = Told.of(told), Told.of(ours)
    begins = {each.producer_id: each.transaction_first_offset for each in mine.producers.values()}
    gone = {
        each.producer_id
        for each in theirs.producers.values()
        if mine.bases[0] <= each.transaction_first_offset != begins.get(each.producer_id, each.transaction_first_offset)
        and not _has_transaction(folder, each.producer_id, each.transaction_first_offset, begins[each.producer_id])
    }
    if not gone and not _stood_still(theirs, mine, folder):
        return told
    answer, offsets, *between, producers = told.split(" |")
    numbers = offsets.split()
    numbers[2] = str(max(mine.stable, theirs.stable))
    words = [word.split(":") for word in producers.split()]
    ended = [[*word[:7], str(begins[int(word[0])]), word[8]] if int(word[0]) in gone else word for word in words]
    offsets, producers = " " + " ".join(numbers), "".join(" " + ":".join(word) for word in ended)
    return " |".join([answer, offsets, *between, producers])


def _stood_still(theirs: Told, mine: Told, folder: pathlib.Path) -> bool:
    """Whether Kafka's last stable offset waits for the high watermark of a transaction that ended since, and of which a
    compaction had taken the begin: readers find nothing of a transaction between both.
    """
    tables = [scan_batches(data)[0] for data in segments_of(folder).values()]
    between = [(each["base_offset"] >= theirs.stable) & (each["base_offset"] < mine.stable) for each in tables]
    return (
        theirs.stable < mine.stable
        and has_compacted(folder)
        and not any((each["attributes"][row] & TRANSACTIONAL).any() for each, row in zip(tables, between, strict=True))
    )


def begins_later(theirs: pathlib.Path, ours: pathlib.Path) -> bool:
    """Whether our transaction indexes have aborted transactions that begin later than in Kafka's, of which a compaction
    has left nothing in front, and all else is the same.
    """
    left, right = files_of(theirs), files_of(ours)
    unlike = {name for name in left | right if left.get(name) != right.get(name)}
    for name in unlike:
        known, kept = (cast("list[tuple[int, ...]]", files.get(name)) for files in (left, right))
        if not name.endswith(".txnindex") or not isinstance(known, list) or not isinstance(kept, list):
            return False
        if [(*row[:2], *row[3:]) for row in known] != [(*row[:2], *row[3:]) for row in kept]:
            return False
        pairs = [(one[1], one[2], other[2]) for one, other in zip(known, kept, strict=True) if one != other]
        if not all(first < later and not _has_transaction(ours, each, first, later) for each, first, later in pairs):
            return False
    return bool(unlike)


def knows_emptied(told: str, ours: str, folder: pathlib.Path) -> bool:
    """Whether the answers differ by producers alone whose epoch we know by a marker that a compaction emptied."""
    if Told.find(told) is None or Told.find(ours) is None:
        return False
    theirs, mine = Told.of(told), Told.of(ours)
    unlike = {
        each for each in theirs.producers | mine.producers if theirs.producers.get(each) != mine.producers.get(each)
    }
    left, right = (answer.split(" |")[:4] for answer in (told, ours))
    emptied: set[tuple[int, int]] = set()
    for data in segments_of(folder).values():
        table = scan_batches(data)[0]
        rows = ((table["attributes"] & CONTROL) > 0) & (table["record_count"] == 0)
        emptied |= set(zip(table["producer_id"][rows].tolist(), table["producer_epoch"][rows].tolist(), strict=True))
    known = ((each, mine.producers.get(each)) for each in unlike)
    return (
        bool(unlike) and left == right and all(one is not None and (each, one.epoch) in emptied for each, one in known)
    )


def has_compacted(folder: pathlib.Path) -> bool:
    """Whether a snapshot has an open transaction of which a compaction has left nothing."""
    return any(
        entry.transaction_first_offset >= min(segments_of(folder))
        and not _has_transaction(folder, entry.producer_id, entry.transaction_first_offset, offset)
        for offset in snapshots_of(folder)
        for entry in _entries_of(folder / f"{offset:020d}.snapshot")
    )


def _entries_of(snapshot: pathlib.Path) -> Sequence[ProducerEntry]:
    """The producers of a snapshot; none of a damaged one, which no log loads."""
    with contextlib.suppress(CorruptIndexError):
        return parse_producer_snapshot(snapshot.read_bytes()).entries
    return ()


def _has_transaction(folder: pathlib.Path, producer_id: int, from_offset: int, up_to: int) -> bool:
    """Whether a batch of a producer's transactions lies in a range; to the log's end: up to -1."""
    for data in segments_of(folder).values():
        table = scan_batches(data)[0]
        is_data = (table["attributes"] & (TRANSACTIONAL | CONTROL)) == TRANSACTIONAL
        inside = (table["base_offset"] >= from_offset) & (table["base_offset"] < (up_to if up_to >= 0 else INT64_MAX))
        if (is_data & inside & (table["producer_id"] == producer_id)).any():
            return True
    return False


def kept_producers(told: str, ours: str, folder: pathlib.Path) -> bool:
    """Whether ours knows more of the producers: Kafka deleted snapshots of what is in the log, and has what the batches
    from the log start on tell. Or less: Kafka also replays what lies in front of the log start in the first segment,
    which a compaction may have joined with others.
    """
    theirs, mine = Told.of(told), Told.of(ours)
    if theirs.producers == mine.producers:
        return theirs.stable == mine.stable and _kept_entries(told, ours, folder)
    known = [mine.producers.get(producer) for producer in theirs.producers]
    if theirs.log_start > theirs.bases[0]:
        known = [one or other for one, other in zip(known, theirs.producers.values(), strict=True)]
    return (
        theirs.producers != mine.producers
        and mine.stable <= theirs.stable
        and None not in known
        and all(one.epoch == other.epoch for one, other in zip(known, theirs.producers.values(), strict=True) if one)
    )


def _kept_entries(told: str, ours: str, folder: pathlib.Path) -> bool:
    """Whether ours has the same producers from a snapshot: the last of their batches alone, and its time as it was
    before a compaction took the record with that time.
    """
    for their, our in zip(*(answer.split("|")[4].split() for answer in (told, ours)), strict=True):
        left, right = their.split(":"), our.split(":")
        if int(left[8]) < int(right[8]):
            return False
        if left[5] != right[5] and int(left[5]) not in _times_of_batch(folder, int(left[3])):
            return False
    return True


def _times_of_batch(folder: pathlib.Path, last_offset: int) -> list[int]:
    """The greatest timestamp of the batch that ends at an offset, if there is one."""
    tables = [scan_batches(data)[0] for data in segments_of(folder).values()]
    return [int(time) for table in tables for time in table["max_timestamp"][table["last_offset"] == last_offset]]


def differs_by_times(told: str, ours: str) -> bool:
    """Whether the times of producers alone differ: one log has them from a snapshot, the other from a batch that was
    damaged since.
    """
    theirs, mine = Told.of(told), Told.of(ours)
    return theirs.stable == mine.stable and theirs.producers == mine.producers


def kept_snapshots(theirs: pathlib.Path, ours: pathlib.Path, told: str) -> bool:
    """Whether ours has snapshots, or producers in one, that Kafka deleted when it recovered, and no other differs: but
    producers that had expired, and that Kafka replayed from their batches.
    """
    left, kept = ({k: v for k, v in files_of(f).items() if k.endswith(".snapshot")} for f in (theirs, ours))
    unlike = {name for name in left | kept if left.get(name) != kept.get(name)}
    known = Told.of(told).producers.keys()
    return bool(unlike) and all(
        name in kept and producers_in(left.get(name)) & known <= producers_in(kept[name]) for name in unlike
    )
