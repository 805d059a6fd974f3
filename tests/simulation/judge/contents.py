"""What a partition holds, by what its producers were told and its consumers read: invariants 1, 6, 11 and 12."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.simulation.facts import Violation
from tests.simulation.judge.batches import Batch, Record, UnreadableBatchError, parse, visible
from tests.simulation.judge.lineage import Lineage, epoch_of
from tests.simulation.messages import AbortedTransaction, Partition

#: How long after an unclean election an answer may arrive that the old leader gave.
LATE_MS: Final = 60_000


class SentBatch(NamedTuple):
    """A batch as its producer sent it."""

    producer: str
    number: int
    partition: Partition
    records: tuple[tuple[bytes | None, bytes | None], ...]
    is_idempotent: bool
    transaction: str | None
    acks: int
    sent_ms: int


class Known(NamedTuple):
    """What is known to be at an offset.

    Attributes:
        epoch: -1 = not known: only its producer was told.
        marker: Of a control batch: producer id, and whether it commits; else None.
        sent: The batch whose record it is; None: a tombstone, or a marker.
        is_acked: Whether its producer was told with acks=all.
    """

    epoch: int
    key: bytes | None
    value: bytes | None
    marker: tuple[int, bool] | None
    sent: SentBatch | None
    is_acked: bool


class ShownBatch(NamedTuple):
    """A batch of a transaction that a read committed consumer got from a leader, and the high watermark and the leader
    epoch of that.
    """

    consumer: str
    producer_id: int
    last_offset: int
    high_watermark: int
    leader_epoch: int


class Branch(NamedTuple):
    """The log of a leader that an unclean election took: its lineage, its start, and its end, where its epoch began."""

    epoch: int
    lineage: Lineage
    log_start: int
    log_end: int


class Sent:
    """All that producers sent, by value, and how the transactions ended. Of all partitions."""

    def __init__(self) -> None:
        self.batches: dict[tuple[str, int], SentBatch] = {}
        self.never_appended: set[tuple[str, int]] = set()
        self.decided: dict[str, bool] = {}
        self.decided_ms: dict[str, int] = {}
        self._by_value: dict[bytes, tuple[SentBatch, int]] = {}

    def add(self, batch: SentBatch) -> None:
        """A producer sends a batch for the first time."""
        self.batches[batch.producer, batch.number] = batch
        for position, (_, value) in enumerate(batch.records):
            if value is not None:
                assert value not in self._by_value, "values are unique"
                self._by_value[value] = batch, position

    def find(self, value: bytes) -> tuple[SentBatch, int] | None:
        """The batch of a value, and its position in it."""
        return self._by_value.get(value)


@dataclass(slots=True)
class Contents:
    """One partition's.

    Attributes:
        at: What is known, by offset.
        cuts: Epochs that began by an unclean election, each with the offset from which on older epochs may differ.
        branches: The logs that they began with. The last one counts where it reaches: what an election took, the next
            one may bring back, out of a log that had not been cut meanwhile.
        last_cut_ms: When the last of them began.
        exempt: Acknowledged records that such elections took.
        unplaced: Acknowledged batches whose producer was not told where they are.
        superseded: Keys whose last records such elections took, with where: what compaction had taken for them in front
            of that is gone.
        published_start: The highest log start of a leader.
    """

    partition: Partition
    sent: Sent
    is_compacted: bool = False
    at: dict[int, Known] = field(default_factory=dict)
    cuts: list[tuple[int, int]] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    last_cut_ms: int = -(10**12)
    exempt: int = 0
    end_offset: int = 0
    unplaced: list[SentBatch] = field(default_factory=list)
    superseded: dict[bytes | None, int] = field(default_factory=dict)
    published_start: int = 0
    _offset_of: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _last_of_producer: dict[str, tuple[int, int]] = field(default_factory=dict)
    _shown: list[ShownBatch] = field(default_factory=list)

    # ---- producers

    def acknowledged(
        self, batch: SentBatch, base_offset: int, leader_epoch: int, now_ms: int, *, is_duplicate: bool = False
    ) -> None:
        """A producer was told that its batch is committed; of a duplicate, an earlier leader may have appended it."""
        epoch = -1 if is_duplicate else leader_epoch
        for position, (key, value) in enumerate(batch.records):
            offset = base_offset + position
            if self._may_be_of_old_branch(leader_epoch, offset, now_ms):
                continue
            self._note(offset, Known(epoch, key, value, None, batch, is_acked=True), "lost write")
            if value is not None:
                self._place(batch, position, offset)

    def _may_be_of_old_branch(self, epoch: int, offset: int, now_ms: int) -> bool:
        """Whether an unclean election took it, or may have, if its epoch is not known."""
        if epoch < 0:
            return now_ms - self.last_cut_ms < LATE_MS and any(offset >= cut for _, cut in self.cuts)
        return self.is_of_old_branch(epoch, offset)

    def is_of_old_branch(self, epoch: int, offset: int) -> bool:
        """Whether an unclean election took what was in an epoch at an offset."""
        for branch in reversed(self.branches):
            if epoch >= branch.epoch:
                return False
            if offset >= branch.log_start:
                return offset >= branch.log_end or self._is_of_another(branch.lineage, offset, epoch)
        return False

    def _note(self, offset: int, known: Known, anomaly: str) -> None:
        """Something is at an offset, for good."""
        before = self.at.get(offset)
        if before is None:
            self.at[offset] = known
            self.end_offset = max(self.end_offset, offset + 1)
            return
        same = before.marker == known.marker and before.value == known.value and before.key == known.key
        if not same:
            raise Violation(
                1 if before.is_acked or known.is_acked else 11,
                "lost write" if before.is_acked else anomaly,
                f"{self.partition} offset {offset}: {_words(known)}, where {_words(before)} was",
            )
        if (before.epoch < 0 <= known.epoch) or (known.is_acked and not before.is_acked):
            epoch = known.epoch if before.epoch < 0 else before.epoch
            self.at[offset] = before._replace(
                epoch=epoch, is_acked=before.is_acked or known.is_acked, sent=before.sent or known.sent
            )

    def _place(self, batch: SentBatch, position: int, offset: int) -> None:
        """A record is at an offset: once, and in its producer's order."""
        key = (batch.producer, batch.number, position)
        before = self._offset_of.setdefault(key, offset)
        if min(before, offset) < self.published_start <= max(before, offset):
            # Retention took one, and whoever began a log behind that does not know its producer: as Kafka's.
            before = offset = self._offset_of[key] = max(before, offset)
        if before != offset and batch.is_idempotent:
            text = f"{self.partition}: record {position} of {batch.producer}'s batch {batch.number}"
            raise Violation(1, "duplicate", f"{text} is at {before} and at {offset}")
        if not batch.is_idempotent or before != offset or position:
            return
        self._check_order(batch, offset)

    def _check_order(self, batch: SentBatch, offset: int) -> None:
        number, last = self._last_of_producer.get(batch.producer, (-1, -1))
        if number >= 0 and (batch.number > number) != (offset > last) and batch.number != number:
            text = f"{self.partition}: {batch.producer}'s batch {batch.number} is at {offset}, its {number} at {last}"
            raise Violation(12, "nonmonotonic send", text)
        if batch.number >= number:
            self._last_of_producer[batch.producer] = batch.number, offset

    def holds(self, batch: SentBatch) -> bool:
        """Whether records of a batch are known to be here."""
        return any((batch.producer, batch.number, at) in self._offset_of for at in range(len(batch.records)))

    # ---- what brokers serve

    def served(self, batches: Iterable[Batch], from_offset: int, where: str) -> None:
        """A broker serves batches of below its high watermark: what is in them is committed."""
        for batch in batches:
            epoch = batch.leader_epoch
            for record in batch.records():
                if self.cuts and self.is_of_old_branch(epoch, record.offset):
                    continue
                marker = None
                if batch.is_control:
                    marker = (batch.producer_id, bool(batch.is_commit))
                self._serve(record, epoch, marker, where)

    def _serve(self, record: Record, epoch: int, marker: tuple[int, bool] | None, where: str) -> None:
        before = self.at.get(record.offset)
        if before is not None and before.epoch == epoch and before.value == record.value and before.marker == marker:
            return  # as so often
        if marker is not None:
            self._note(record.offset, Known(epoch, None, None, marker, None, is_acked=False), "lost write")
            return
        found = None if record.value is None else self.sent.find(record.value)
        if record.value is not None and found is None:
            text = f"{self.partition} offset {record.offset}, {where}: {record.value[:40]!r} was never sent"
            raise Violation(1, "phantom read", text)
        batch = None if found is None else found[0]
        self._note(
            record.offset, Known(epoch, record.key, record.value, None, batch, is_acked=False), "nonrepeatable read"
        )
        if found is not None:
            self._check_sent(found[0], found[1], record, where)
            self._place(found[0], found[1], record.offset)

    def _check_sent(self, batch: SentBatch, position: int, record: Record, where: str) -> None:
        text = f"{self.partition} offset {record.offset}, {where}: {record.value!r}"
        if batch.partition != self.partition:
            raise Violation(1, "misplaced read", f"{text} was sent to {batch.partition}")
        if batch.records[position][0] != record.key:
            raise Violation(1, "corrupt read", f"{text} has key {record.key!r}, not {batch.records[position][0]!r}")
        if (batch.producer, batch.number) in self.sent.never_appended:
            raise Violation(1, "phantom read", f"{text} was refused for good")

    # ---- consumers

    def polled(
        self,
        consumer: str,
        offset: int,
        batches: list[Batch],
        aborted: Iterable[AbortedTransaction],
        *,
        is_committed: bool,
        high_watermark: int,
        last_stable_offset: int,
        leader_epoch: int,
        lacks_marker: Callable[[str], bool],
    ) -> None:
        """A consumer got an answer.

        Args:
            consumer: It.
            offset: What it had asked for.
            batches: That it got.
            aborted: That it was told.
            is_committed: Whether it reads committed.
            high_watermark: That it was told.
            last_stable_offset: That it was told.
            leader_epoch: Of the leader that gave it, -1 = it was a follower.
            lacks_marker: Whether who gave it may have no marker of a transaction that was decided.
        """
        self._check_contiguous(consumer, offset, batches)
        end = last_stable_offset if is_committed else high_watermark
        if batches and batches[-1].last_offset >= end:
            text = f"{consumer} got {self.partition} up to {batches[-1].last_offset}, the end for it is {end}"
            raise Violation(9, "precommitted read" if is_committed else "dirty read", text)
        if is_committed:
            self._check_transactions(consumer, offset, batches, aborted, lacks_marker)
            self._shown += (
                ShownBatch(consumer, each.producer_id, each.last_offset, high_watermark, leader_epoch)
                for each in batches
                if each.is_transactional and not each.is_control and leader_epoch >= 0
            )

    def transaction_at(self, offset: int) -> str | None:
        """The transaction of the record at an offset; None: of none, or nothing is known of it."""
        known = self.at.get(offset)
        return None if known is None or known.sent is None else known.sent.transaction

    def _check_contiguous(self, consumer: str, offset: int, batches: list[Batch]) -> None:
        at = offset
        for batch in batches:
            text = f"{consumer} asked {self.partition} from {offset} and got {batch.base_offset}..{batch.last_offset}"
            if batch.last_offset < at:
                raise Violation(12, "nonmonotonic poll", f"{text}, it had read up to {at}")
            is_whole = self.is_compacted or batch.count == batch.last_offset - batch.base_offset + 1
            if not is_whole or (batch.base_offset > at and not self.is_compacted):
                raise Violation(12, "poll skip", f"{text}, {batch.count} records of it, {at} was next")
            at = batch.last_offset + 1

    def _check_transactions(
        self,
        consumer: str,
        offset: int,
        batches: list[Batch],
        aborted: Iterable[AbortedTransaction],
        lacks_marker: Callable[[str], bool],
    ) -> None:
        """Exactly what is in committed transactions, or in none, is shown."""
        shown = {record.offset for record in visible(batches, aborted, offset)}
        for batch in batches:
            if batch.is_control:
                continue
            for record in batch.records():
                if record.offset < offset or record.value is None:
                    continue
                found = self.sent.find(record.value)
                name = None if found is None else found[0].transaction
                if name is not None and self.cuts:
                    continue  # a marker that such an election took lets a later one decide
                is_commit, is_shown = True if name is None else self.sent.decided.get(name), record.offset in shown
                if is_commit == is_shown or (name is not None and lacks_marker(name)):
                    continue  # its producer's next marker decides in the place of that which went
                self.check_shown(
                    f"{consumer} at {self.partition} offset {record.offset}, {name}", is_commit, is_shown=is_shown
                )

    @staticmethod
    def check_shown(where: str, is_commit: bool | None, *, is_shown: bool) -> None:
        """A record of a transaction is shown to a read committed consumer if it was committed, and else not."""
        if is_shown and is_commit is None:
            raise Violation(6, "precommitted read", f"{where}: nobody has decided yet")
        if is_shown and is_commit is False:
            raise Violation(6, "aborted read", where)
        if not is_shown and is_commit:
            raise Violation(6, "lost write", f"{where}: it was committed, and is left out as aborted")

    def check_decided(self) -> None:
        """Once all is read: what a leader showed of a transaction was decided below its high watermark of that moment.

        This is asked of markers of the leader's own epoch: a log that was opened since, or cut, does not know which of
        its markers are not replicated yet, as Kafka's does not, and who has decided is the coordinator. The marker may
        be another one where some offset in front of it was never seen.
        """
        markers: dict[int, list[int]] = {}
        for offset in sorted(self.at):
            marker = self.at[offset].marker
            if marker is not None:
                markers.setdefault(marker[0], []).append(offset)
        for each in self._shown if not (self.cuts or self.is_compacted) else ():
            marker_at = next((at for at in markers.get(each.producer_id, ()) if at > each.last_offset), None)
            if marker_at is None or marker_at < each.high_watermark:
                continue
            if self.at[marker_at].epoch != each.leader_epoch:
                continue
            if all(offset in self.at for offset in range(each.last_offset + 1, marker_at)):
                text = f"{each.consumer} got {self.partition} up to {each.last_offset}, decided at {marker_at}"
                raise Violation(6, "precommitted read", f"{text}, while the high watermark was {each.high_watermark}")

    # ---- elections

    def elected(
        self, epoch: int, lineage: Lineage, log_end: int, log_start: int, *, is_unclean: bool, now_ms: int
    ) -> None:
        """A leader has begun an epoch with its log as it is.

        Args:
            epoch: That began.
            lineage: Of the leader's log.
            log_end: Its end, where the epoch begins.
            log_start: Its start.
            is_unclean: Whether this election, or one since the last leader began, was unclean.
            now_ms: Time.
        """
        lost = sorted(
            offset
            for offset, known in self.at.items()
            if offset >= log_start and (offset >= log_end or self._is_of_another(lineage, offset, known.epoch))
        )
        if not is_unclean:
            if lost:
                known = self.at[lost[0]]
                text = f"{self.partition}: the leader of epoch {epoch} begins at {log_end} with lineage {lineage}"
                raise Violation(1, "lost write", f"{text}, without offset {lost[0]}, {_words(known)}")
            return
        cut = min([log_end, *lost[:1]])
        self.cuts.append((epoch, cut))
        self.branches.append(Branch(epoch, tuple(lineage), log_start, log_end))
        self.last_cut_ms = now_ms
        self.exempt += sum(1 for offset in lost if self.at[offset].is_acked)
        self.cut(cut)

    def _is_of_another(self, lineage: Lineage, offset: int, known_epoch: int) -> bool:
        """Whether a log has another epoch at an offset. In a compacted one epochs begin late: at the first batch that
        compaction had left for it. Whether it has the last value of each key is asked elsewhere.
        """
        if known_epoch < 0 or epoch_of(lineage, offset) == known_epoch:
            return False
        following = next((epoch for epoch, start in lineage if start > offset), -1)
        return not (self.is_compacted and following >= known_epoch)

    def is_current(self, lineage: Lineage, log_start: int, log_end: int) -> bool:
        """Whether a log has none of what an unclean election took."""
        if log_start >= log_end:
            return True
        return all(log_end <= cut or epoch_of(lineage, log_end - 1) >= epoch for epoch, cut in self.cuts)

    def cut(self, offset: int) -> None:
        """Forget what was at an offset and behind."""
        for each in [each for each in self.at if each >= offset]:
            self.superseded[self.at.pop(each).key] = offset
        for key in [key for key, each in self._offset_of.items() if each >= offset]:
            del self._offset_of[key]
        self._last_of_producer = {
            producer: (number, last) for producer, (number, last) in self._last_of_producer.items() if last < offset
        }
        self.end_offset = min(self.end_offset, offset)


def _words(known: Known) -> str:
    what = f"marker {known.marker}" if known.marker is not None else f"{known.key!r}={known.value!r}"
    told = ", acknowledged" if known.is_acked else ""
    return f"{what} of epoch {known.epoch}{told}"


def parse_sound(data: bytes) -> list[Batch] | None:
    """Whole batches; None: they are damaged."""
    try:
        return parse(data)
    except UnreadableBatchError:
        return None
