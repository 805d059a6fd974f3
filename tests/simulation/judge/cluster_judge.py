"""The judge of a run: it takes what happens, has each model look, and ends the run at the first violation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from tests.simulation.facts import NOTHING, ClusterView, ReadPart, ReplicaView, TopicFacts, Violation
from tests.simulation.judge import replicas, retention
from tests.simulation.judge.batches import Batch, parse
from tests.simulation.judge.compaction import Clocks, check_compacted
from tests.simulation.judge.contents import Sent, SentBatch, parse_sound
from tests.simulation.judge.disk_files import check_files, waits_to_go
from tests.simulation.judge.judged_partition import JudgedPartition
from tests.simulation.judge.judged_topics import JudgedTopics
from tests.simulation.judge.lookups import check_lookup
from tests.simulation.judge.producers import check_producers
from tests.simulation.judge.retention import Deadlines, Overdue, lasting
from tests.simulation.judge.segments import DELETING, FINISHED, SegmentTable
from tests.simulation.judge.stored_objects import StoredObjects, check_copied_below_stable
from tests.simulation.judge.whole_reads import WholeRead
from tests.simulation.messages import AbortedTransaction, ListedOffset, ListOffset, Partition
from tests.simulation.trace import Trace

#: Faults by which records may go although every broker that had them synced them.
_LOSING: Final = {"unclean election", "wipe", "disk failure", "local rot"}
_ROTTING: Final = {"local rot", "cache rot"}
#: How much older than its bound a record of a settled cluster may be.
_SLACK_MS: Final = 10_000
#: Of a view: from its role to its lineage.
_CHANGING: Final = slice(ReplicaView._fields.index("role"), ReplicaView._fields.index("lineage") + 1)


class ClusterJudge:
    """Takes the facts of one run (``facts.Judge``).

    Args:
        trace: Of the run; it is given counters.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._sent = Sent()
        self._tier = SegmentTable()
        self._objects = StoredObjects(self._tier)
        self._topics = JudgedTopics(self._sent)
        self._faults: set[str] = set()
        #: Of the last look at each broker's replicas: their values, their tier's version, facts, what is judged.
        self._seen: dict[int, dict[Partition, tuple[object, int, TopicFacts, tuple[object, ...]]]] = {}
        self._ends: dict[tuple[int, Partition], int] = {}
        self._led: set[tuple[int, Partition]] = set()
        self._unclean: set[int] = set()
        self._set_aside: dict[int, set[str]] = {}
        self._deadlines = Deadlines()
        self._clocks = Clocks()
        self._view: ClusterView

    # ---- the cluster

    def begin(self, view: ClusterView, now_ms: int) -> None:
        self._view = view

    def topic_changed(self, topic: str, generation: int, facts: TopicFacts | None, now_ms: int) -> None:
        self._deadlines.disturb()
        self._topics.changed(topic, generation, facts, now_ms)

    def elected(
        self,
        partition: Partition,
        epoch: int,
        leader: int | None,
        in_sync: frozenset[int],
        is_unclean: bool,
        now_ms: int,
    ) -> None:
        known = self._topics.find(partition)
        if known is None:
            return
        self._deadlines.disturb()
        known.were_out_of_sync(self._topics.facts(partition).replicas[partition.number], now_ms)
        if epoch > known.current and leader is not None:
            self._trace.count("leader changes", int(known.leader is not None and known.leader != leader))
        known.leader = leader if leader is not None else known.leader
        known.current, known.in_sync = epoch, in_sync
        known.epochs[epoch] = known.epochs.get(epoch, False) or is_unclean
        self._trace.count("unclean elections", int(is_unclean))

    def broker_started(self, broker: int, life: int, now_ms: int) -> None:
        self._objects.began(broker, life)
        self._unclean.discard(broker)
        self._deadlines.disturb()

    def broker_stopped(self, broker: int, life: int, is_clean: bool, now_ms: int) -> None:
        self._objects.ended(broker)
        self._deadlines.disturb()
        if not is_clean:
            self._unclean.add(broker)
        self._trace.count("clean stops" if is_clean else "crashes")
        for partition in self._seen.pop(broker, {}):
            self._ends.pop((broker, partition), None)
            self._led.discard((broker, partition))

    def disk_wiped(self, broker: int, now_ms: int) -> None:
        self._trace.count("wiped disks")
        self._faults.add("wipe")

    def fault_began(self, name: str, text: str, now_ms: int) -> None:
        self._faults.add(name)
        self._deadlines.disturb(began=lasting(name, text))
        if name == "local rot":
            self._topics.rotted(text)
        if name == "pause":
            self._objects.paused(int(text))

    def fault_ended(self, name: str, text: str, now_ms: int) -> None:
        self._deadlines.disturb(ended=lasting(name, text))
        if name == "pause":
            self._objects.resumed(int(text))

    # ---- clients

    def sent(
        self,
        producer: str,
        number: int,
        partition: Partition,
        records: tuple[tuple[bytes | None, bytes | None], ...],
        *,
        acks: int,
        is_idempotent: bool,
        transaction: str | None,
        now_ms: int,
    ) -> None:
        self._sent.add(SentBatch(producer, number, partition, records, is_idempotent, transaction, acks, now_ms))

    def acknowledged(
        self, producer: str, number: int, base_offset: int, is_duplicate: bool, now_ms: int, leader_epoch: int = -1
    ) -> None:
        batch = self._sent.batches[producer, number]
        self._trace.count("acknowledged")
        self._trace.count("duplicates", int(is_duplicate))
        known = self._topics.find(batch.partition)
        if known is not None and batch.acks == -1 and base_offset < 0:
            known.contents.unplaced.append(batch)
        elif known is not None and batch.acks == -1:
            known.contents.acknowledged(batch, base_offset, leader_epoch, now_ms, is_duplicate=is_duplicate)

    def refused(self, producer: str, number: int, error: str, is_final: bool, now_ms: int) -> None:
        self._trace.count("refused for good" if is_final else "refused")
        batch = self._sent.batches.get((producer, number))
        known = None if batch is None else self._topics.find(batch.partition)
        if not is_final:
            return
        self._sent.never_appended.add((producer, number))
        if batch is not None and known is not None and known.contents.holds(batch):
            text = f"{batch.partition} has {producer}'s batch {number}, which was refused for good: {error}"
            raise Violation(1, "phantom read", text)

    def transaction_ended(self, transaction: str, outcome: str, now_ms: int) -> None:
        self._trace.count(f"transactions {outcome}")
        decided = self._sent.decided.get(transaction)
        if decided is not None and outcome != "unknown" and decided != (outcome == "committed"):
            raise Violation(6, "lost decision", f"{transaction}: decided as commit {decided}, its producer: {outcome}")

    def transaction_decided(self, transaction: str, is_commit: bool, now_ms: int) -> None:
        before = self._sent.decided.setdefault(transaction, is_commit)
        self._sent.decided_ms.setdefault(transaction, now_ms)
        if before != is_commit:
            raise Violation(6, "changed decision", f"{transaction}: commit {before}, then {is_commit}")

    def served(self, broker: int, partition: Partition, offset: int, data: bytes, is_remote: bool, now_ms: int) -> None:
        known = self._topics.find(partition)
        batches = self._read(data)
        if batches is None and is_remote and "local rot" not in self._faults:
            text = f"broker {broker} serves {partition} from {offset} on out of its cache, and bits of it have rotted"
            raise Violation(1, "corrupt read", text)
        self._trace.count("answers with rotten bytes", int(batches is None))
        if known is None or not batches:
            return
        self._trace.count("remote reads" if is_remote else "local reads")
        view = self._view.replica(broker, partition)
        if view is not None:
            replicas.check_served(view, batches)
        known.contents.served(batches, offset, f"broker {broker}, {'remote' if is_remote else 'local'}")
        known.saw(batches)

    def _read(self, data: bytes) -> list[Batch] | None:
        """Batches of an answer; None: bits of it have rotted, which consumers notice by the checksum."""
        batches = parse_sound(data) if self._faults & _ROTTING else parse(data)
        if batches is not None and self._faults & _ROTTING and not all(each.is_sound() for each in batches):
            return None
        return batches

    def polled(
        self,
        consumer: str,
        partition: Partition,
        *,
        broker: int,
        offset: int,
        is_committed: bool,
        data: bytes,
        aborted: tuple[AbortedTransaction, ...],
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        is_remote: bool,
        now_ms: int,
    ) -> None:
        known = self._topics.find(partition)
        batches = self._read(data)
        if known is None or batches is None:
            return
        self._trace.count("polls with data", int(bool(batches)))
        self._trace.count("reads from followers", int(bool(batches) and broker != known.leader))
        view = self._view.replica(broker, partition)
        known.contents.polled(
            consumer,
            offset,
            batches,
            aborted,
            is_committed=is_committed,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            leader_epoch=view.leader_epoch if view is not None and view.role == "leader" else -1,
            lacks_marker=partial(self._lacks_marker, known, broker, now_ms),
        )
        if batches:
            known.consumers[consumer] = max(known.consumers.get(consumer, 0), batches[-1].last_offset + 1)

    def _lacks_marker(self, known: JudgedPartition, broker: int, now_ms: int, transaction: str) -> bool:
        """Whether compaction may have taken the marker of a transaction before a broker had it, which has the records
        that the leader's log has no more: it was out of sync longer than ``delete.retention.ms``, as Kafka's may be.
        """
        decided_ms = self._sent.decided_ms.get(transaction)
        if decided_ms is None or not known.contents.is_compacted or not known.was_out_of_sync(broker, decided_ms):
            return False
        times = self._topics.tombstones(known.contents.partition)
        is_due = times.earliest_ms(decided_ms, self._clocks) <= now_ms
        self._trace.count("markers that went before a follower had them", int(is_due))
        return is_due

    def remote_read_failed(self, broker: int, partition: Partition, offset: int, error: str) -> None:
        if error == "CORRUPT_MESSAGE" and "local rot" not in self._faults:
            text = f"broker {broker} finds {partition} at {offset} damaged: its copies and the store are sound"
            raise Violation(1, "corrupt read", text)

    def records_deletion_asked(self, partition: Partition, offset: int, now_ms: int) -> None:
        known = self._topics.find(partition)
        if known is not None:
            ends = (each.log_end_offset for each in self._view.replicas() if each.partition == partition)
            end = max(ends, default=0) if offset == -1 else offset
            known.sizes.asked_start = max(known.sizes.asked_start, end)

    def looked_up(self, client: str, request: ListOffset, answer: ListedOffset, *, broker: int, now_ms: int) -> None:
        known = self._topics.find(request.partition)
        if known is not None:
            self._trace.count("lookups by time", int(request.timestamp >= 0))
            check_lookup(known.contents, request, answer, known.published_start, f"{client}, broker {broker}")

    def position_reset(
        self, consumer: str, partition: Partition, before: int, offset: int, why: str, now_ms: int
    ) -> None:
        known = self._topics.find(partition)
        self._trace.count("reads at random offsets", int(why == "random"))
        if known is None or why == "random":
            return
        is_behind = offset < before <= known.contents.end_offset and not known.contents.cuts
        if is_behind and before > known.published_start and offset < known.published_start:
            text = f"{consumer} was at {before} of {partition} and is sent back to {offset}: {why}"
            raise Violation(12, "nonmonotonic poll", text)

    def read_whole(
        self,
        broker: int,
        partition: Partition,
        *,
        is_committed: bool,
        start: int,
        end: int,
        parts: tuple[ReadPart, ...],
        now_ms: int,
    ) -> None:
        known = self._topics.find(partition)
        if known is None:
            return
        self._trace.count("whole reads")
        facts = self._topics.facts(partition)
        tier = (facts.topic_id, partition.number)
        reader = f"read {'' if is_committed else 'un'}committed from broker {broker}"
        lacks = partial(self._lacks_marker, known, broker, now_ms)
        read = WholeRead(known.contents, start, end, parts, reader, is_committed=is_committed, lacks_marker=lacks)
        skipped = known.skipped  # the segment of such an offset may have gone since
        read.check(
            known.latest_start([facts], self._view.replica(broker, partition), self._tier),
            lambda offset: max(self._objects.end_of_expired(tier, offset), skipped.get(offset, offset)),
        )
        if facts.is_compacted:
            check_compacted(
                known.contents,
                read.batches,
                f"{reader}, {partition}",
                end_offset=end,
                times=self._topics.tombstones(partition),
                clocks=self._clocks,
                now_ms=now_ms,
            )

    def unreadable(
        self, broker: int, partition: Partition, offset: int, error: str, *, is_committed: bool, now_ms: int
    ) -> int | None:
        known = self._topics.find(partition)
        if known is None:
            return None
        facts = self._topics.facts(partition)
        view = self._view.replica(broker, partition)
        start = known.latest_start([facts], view, self._tier)
        if view is not None and error == "OFFSET_OUT_OF_RANGE" and offset < view.log_start_offset <= start:
            return view.log_start_offset
        end = self._objects.end_of_expired((facts.topic_id, partition.number), offset)
        if end > offset:
            self._trace.count("reads of what a lifecycle rule took")
            known.skipped[offset] = max(end, known.skipped.get(offset, 0))
            return end
        if self._topics.has_rotted(partition):
            self._trace.count("reads of what has rotted")
            return None
        name = known.contents.transaction_at(offset)
        if is_committed and error == NOTHING and name is not None and self._lacks_marker(known, broker, now_ms, name):
            return None  # it hangs there, as Kafka's would, until its producer writes again or an administrator acts
        text = f"read {'' if is_committed else 'un'}committed from broker {broker}, {partition} at {offset}: {error}"
        raise Violation(1, "lost write", f"{text}, again and again")

    # ---- the tier

    def metadata_appended(self, broker: int, partition: int, value: bytes, now_ms: int) -> None:
        segment = self._tier.apply(value, now_ms)
        if segment is None:
            return
        of = self._topics.find_partition(segment.partition)
        self._trace.note("segment", of, segment)
        known = None if of is None else self._topics.find(of)
        if of is not None and known is not None and segment.state == DELETING:  # its log may be amid a change all along
            known.published_start = max(known.published_start, self._view.log_start(broker, of))
        self._trace.count("tiered segments", int(segment.state == FINISHED))
        if of is not None and segment.state == FINISHED:
            check_copied_below_stable(segment, self._view.replica(broker, of))

    def object_put(
        self, key: str, size_bytes: int, broker: int, life: int, now_ms: int, *, is_awaited: bool = True
    ) -> None:
        self._objects.put(key, broker, life, is_awaited=is_awaited)

    def object_deleted(self, key: str, by: str, now_ms: int) -> None:
        self._objects.deleted(key, by)

    def has_late_objects(self) -> bool:
        return self._objects.has_late(self._view.stored())

    def due_segments(self) -> set[str]:
        views = ((known, self._view.replica(known.leader or 0, each)) for each, known in self._topics.items())
        led = [(known, view) for known, view in views if view is not None and view.role == "leader"]
        return {f"{view.partition} {each.key}" for known, view in led for each in self._overdue(known, view, 0)}

    # ---- time

    def step(self, touched: frozenset[int], now_ms: int) -> None:
        for broker in sorted(touched):
            seen, runs = self._seen.setdefault(broker, {}), False
            for partition, known in self._topics.items():
                values = self._view.values(broker, partition)
                facts = self._topics.facts(partition)
                version = self._tier.versions.get((facts.topic_id, partition.number), 0)
                last = seen.get(partition)
                if last is not None and last[0] is values and last[1] == version and last[2] is facts:
                    runs = True
                    continue
                view = self._view.replica(broker, partition)
                if view is not None and view.role != "offline":
                    runs = True
                    self._clocks.saw(view.clock_ms, now_ms)
                    seen[partition] = values, version, facts, (*view[_CHANGING], view.copied_offset)
                    if last is None or last[1:] != seen[partition][1:]:
                        self._look(view, partition, known, now_ms)
                elif view is not None and view.broker == known.leader and view.leader_epoch == known.current:
                    # Its disk failed in the turn in which it had moved it, and answered a follower.
                    known.high_watermark = max(known.high_watermark, view.high_watermark)
            if runs:
                self._clocks.saw(self._view.clock_ms(broker), now_ms)

    def _look(self, view: ReplicaView, partition: Partition, known: JudgedPartition, now_ms: int) -> None:
        """Look at a replica, which has changed, or the tier has."""
        late = self._topics.late_facts(partition, now_ms)
        facts, key = late[-1], (view.broker, partition)
        replicas.check_offsets(view)
        retention.note_start(known.sizes, view)
        if retention.was_untiered(late):  # what the tier had goes: whoever leads next may begin where it is local
            known.sizes.asked_start = max(known.sizes.asked_start, view.local_log_start_offset)
            known.left_start = max(known.left_start, view.local_log_start_offset)
        if view.role == "leader":
            self._led.add(key)
            self._look_at_leader(view, known, late, now_ms)
        elif view.log_start_offset > known.published_start and key in self._led and facts.is_tiered:
            self._led.remove(key)  # its last expiry was under way when it heard of the next leader
            known.take_start(view, late, self._tier, self._trace)
        else:  # by the bounds of now
            known.latest_start(late, view, self._tier, self._view.log_start(known.leader or 0, partition))
        if known.contents.is_current(view.lineage, view.log_start_offset, view.log_end_offset):
            starts, has_next = (known.published_start, known.left_start), known.has_next_leader(view.leader_epoch)
            replicas.check_tier(view, facts, self._tier, *starts, is_copied_judged=not has_next)
            end_before = self._ends.get(key, 1 << 62)  # behind a start, a cut, or a beginning from the tier
            self._ends[key] = view.log_end_offset
            if view.log_end_offset < end_before or view.log_end_offset == view.local_log_start_offset:
                self._check_producers(known, view)

    def _check_producers(self, known: JudgedPartition, view: ReplicaView) -> None:
        """What a replica knows of producers; not of one that has yet to begin anew from the tier, with what it has of
        them: Kafka's is a follower too until then (RemoteLogManager's auxiliary state).
        """
        has = self._view.producers(view.broker, view.partition)
        if has is None or self._topics.is_rotten(view.broker, view.partition):
            return
        is_compacted = self._topics.facts(view.partition).is_compacted

        def check() -> None:
            check_producers(
                known.producers,
                view,
                has,
                self._view.producer_expiration_ms,
                published_start=known.published_start,
                compacted_log=(lambda: parse(self._view.log_bytes(view.broker, view.partition)))
                if is_compacted
                else None,
            )

        try:
            check()
        except Violation:
            if not is_compacted:
                raise
            self._read_logs(known, view.partition)
            check()

    def _read_logs(self, known: JudgedPartition, partition: Partition) -> None:
        """Take what is committed in all logs of a partition: compaction may go by a marker that nobody has read yet."""
        for each in self._view.replicas():
            if each.partition == partition and each.role != "offline":
                log = parse(self._view.log_bytes(each.broker, partition))
                known.saw([batch for batch in log if batch.last_offset < each.high_watermark])

    def _look_at_leader(self, view: ReplicaView, known: JudgedPartition, late: list[TopicFacts], now_ms: int) -> None:
        if view.leader_epoch > known.epoch and view.lineage and view.lineage[-1][0] == view.leader_epoch:
            self._begin_epoch(view, known, now_ms)
        known.high_watermark = max(known.high_watermark, view.high_watermark)
        known.take_start(view, late, self._tier, self._trace)

    def _begin_epoch(self, view: ReplicaView, known: JudgedPartition, now_ms: int) -> None:
        """A leader was seen to have begun its epoch."""
        since = [each for each in known.epochs if known.epoch < each <= view.leader_epoch]
        is_unclean = any(known.epochs[each] for each in since)
        first = known.epoch < 0
        known.epoch = view.leader_epoch
        if first:
            return
        contents = known.contents
        before = contents.exempt
        contents.elected(
            view.leader_epoch,
            view.lineage,
            view.lineage[-1][1],
            view.log_start_offset,
            is_unclean=is_unclean,
            now_ms=now_ms,
        )
        if is_unclean:
            known.sizes.cut(contents.cuts[-1][1])
            known.producers.cut(contents.cuts[-1][1])
        lost = contents.exempt - before
        self._trace.count("exempt records", lost)
        if lost and self._topics.facts(view.partition).flush_messages == 1 and not self._faults & _LOSING:
            text = f"{view.partition}: {lost} acknowledged records are gone, with flush.messages=1 and crashes alone"
            raise Violation(1, "lost write", text)

    def checkpoint(self, now_ms: int) -> None:
        self._trace.count("checkpoints")
        by_partition: dict[Partition, list[ReplicaView]] = {}
        for view in self._view.replicas():
            if view.partition in self._topics.partitions and view.role != "offline":
                by_partition.setdefault(view.partition, []).append(view)
        for partition, views in by_partition.items():
            known = self._topics.partitions[partition]
            self._compare(known, views, now_ms)
            leader = next((each for each in views if each.role == "leader" and each.broker == known.leader), None)
            if leader is not None and not self._topics.has_rotted(partition):
                overdue = self._overdue(known, leader, 0)
                self._deadlines.check(partition, overdue, now_ms, within_ms=_SLACK_MS)

    def _compare(self, known: JudgedPartition, views: list[ReplicaView], now_ms: int) -> None:
        """All running replicas of a partition."""
        partition = known.contents.partition
        facts = self._topics.facts(partition)
        current = [
            each
            for each in views
            if each.leader_epoch == known.current == known.epoch and not self._topics.is_rotten(each.broker, partition)
        ]
        logs: list[tuple[ReplicaView, list[Batch]]] = []
        for view in current:
            log = parse(self._view.log_bytes(view.broker, partition))
            replicas.check_log(view, log, is_compacted=facts.is_compacted)
            logs.append((view, log))
            if view.broker in known.in_sync:
                replicas.check_held(view, known.contents.end_offset)
            if view.role == "leader":
                known.saw([each for each in log if each.last_offset < view.high_watermark])
            if facts.is_compacted and view.broker in known.in_sync:
                check_compacted(
                    known.contents,
                    log,
                    f"broker {view.broker}, {view.role} of {partition}",
                    end_offset=view.high_watermark,
                    times=self._topics.tombstones(partition),
                    clocks=self._clocks,
                    now_ms=now_ms,
                )
        highest = max(known.high_watermark, *(each.high_watermark for each in views if each.role == "leader"), 0)
        for view, _ in logs:
            self._check_producers(known, view)
            replicas.check_high_watermark(view, highest)
        if facts.is_compacted or not logs:
            return
        leader = next((each for each in logs if each[0].role == "leader"), None)
        for other in logs if leader is not None else []:
            if leader is not None and other is not leader and other[0].broker in known.in_sync:
                replicas.check_agreement(*leader, *other)

    # ---- the end

    def settled(self, now_ms: int) -> None:
        views = {(each.broker, each.partition): each for each in self._view.replicas()}
        self.checkpoint(now_ms)
        for view in views.values():
            of = self._topics.find(view.partition)
            if (
                of is not None
                and not of.contents.is_compacted
                and not self._topics.is_rotten(view.broker, view.partition)
            ):
                replicas.check_lineage(view)
        self._objects.check_settled(now_ms, self._topics.untiered)
        for partition, known in self._topics.items():
            leader = None if known.leader is None else views.get((known.leader, partition))
            if leader is None or leader.role != "leader":
                raise Violation(10, "no leader", f"{partition}: broker {known.leader} does not lead it")
            self._check_settled(known, leader, {broker for broker, each in views if each == partition})
        self._objects.check(self._view.stored())
        self._set_aside = {broker: {*filter(waits_to_go, paths)} for broker, paths in self._view.files().items()}

    def store_settled(self, now_ms: int) -> None:
        self._objects.check(self._view.stored())

    def _check_settled(self, known: JudgedPartition, leader: ReplicaView, running: set[int]) -> None:
        """Invariants 7 and 10 of one partition."""
        facts = self._topics.facts(leader.partition)
        if self._topics.has_rotted(leader.partition):
            return  # an operator has to act
        replicas.check_settled(leader, facts, known.in_sync, running)
        for each in self._overdue(known, leader, _SLACK_MS):
            raise Violation(7, "late deletion", each.text)

    def _overdue(self, known: JudgedPartition, leader: ReplicaView, slack_ms: int) -> Iterator[Overdue]:
        facts = self._topics.facts(leader.partition)
        yield from retention.overdue_locally(known.sizes, facts, leader, self._tier, slack_ms=slack_ms)
        yield from retention.overdue_in_tier(known.sizes, self._tier, facts, leader, slack_ms=slack_ms)

    def closed(self, now_ms: int) -> None:
        for known in self._topics:
            known.contents.check_decided()
        left = {name: count for name, count in self._view.open_resources().items() if count}
        if left:
            raise Violation(8, "leak", str(left))
        for broker, paths in self._view.files().items():
            if broker not in self._unclean:
                self._check_files(broker, paths)
        self._trace.count("unjudged deletions", sum(each.sizes.unjudged for each in self._topics))
        self._trace.count("orphans", len(self._objects.orphans))
        self._trace.count("puts behind their segment's deletion", self._objects.late_puts)

    def _check_files(self, broker: int, paths: list[str]) -> None:
        """Of a broker that stopped cleanly; what has rotted an operator has to look at."""
        owned = {f"{each.topic}-{each.number}": each for each in self._topics.replicas_of(broker)}
        rotten = [folder for folder, each in owned.items() if self._topics.is_rotten(broker, each)]
        kept = tuple(f"/{folder}{end}" for folder in rotten for end in "/.")  # the one that it moves into, too
        sound = [each for each in paths if not any(folder in each for folder in kept)]
        # Of a compacted log segments of the same name are set aside again and again.
        compacted = [f"/{folder}/" for folder, each in owned.items() if self._topics.facts(each).is_compacted]
        before = {path for path in self._set_aside.get(broker, ()) if not any(each in path for each in compacted)}
        check_files(broker, sound, owned.keys(), before)
