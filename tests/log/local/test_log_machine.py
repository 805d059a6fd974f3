"""The living log against a list of batches: whatever is done to it, in whatever order, both have the same answers."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from tests.support.appended_log import DAY_MS, IDEMPOTENT, TRANSACTIONAL, AppendedLog
from tests.support.log_model import LogModel, ModelBatch, ModelSegment
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import OffsetOutOfRangeError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.recovery.tier_start import TIER_START_FILE


class ExpectedRead(NamedTuple):
    data: bytes
    segment_base_offset: int
    position: int
    first_entry_incomplete: bool


def expected_read(
    model: LogModel, start: int, *, limit: int, max_bytes: int, min_one_message: bool
) -> ExpectedRead | None:
    """The bytes of a read; None: nothing to read. The start lies in the log."""
    if start >= limit:
        return None
    last = [segment for segment in model.segments if segment.base_offset <= limit][-1]
    end_position = last.position_of(limit)
    first = [segment for segment in model.segments if segment.base_offset <= start][-1]
    for segment in model.segments[model.segments.index(first) :]:
        position = segment.position_of(start)
        if position is None:
            continue
        if segment.base_offset > last.base_offset:
            return None
        end = segment.size if segment is not last or end_position is None else end_position
        size = next(batch.size for batch in segment.batches if batch.last_offset >= start)
        wanted = max(max_bytes, size) if min_one_message else max_bytes
        data = segment.data[position : min(end, position + wanted)]
        return ExpectedRead(data, segment.base_offset, position, wanted < size) if data else None
    return None


def expected_offset_for(model: LogModel, timestamp_ms: int) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch) of the first local record that is late enough."""
    for segment in model.segments:
        if segment.largest_timestamp_ms >= timestamp_ms:
            for batch in segment.batches:
                for record in batch.records:
                    if record.timestamp_ms >= timestamp_ms and record.offset >= max(
                        model.log_start, model.local_log_start
                    ):
                        return record.timestamp_ms, record.offset, batch.leader_epoch
            return None  # Kafka does not go on to the next segment
    return None


def expected_greatest(model: LogModel) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with the greatest timestamp; None without records."""
    records = [record for batch in model.batches for record in batch.records]
    greatest = max((record.timestamp_ms for record in records), default=-1)
    return next(((greatest, r.offset) for r in records if r.timestamp_ms == greatest), None)


def apply_retention(model: LogModel, config: LogConfig, *, tiered: bool, now_ms: int) -> int:
    """Retention by start offset, then size, then time; how many segments went."""
    copies = tiered and not config.remote_log_copy_disable
    size_limit, time_limit = config.retention_bytes, config.retention_ms
    if copies and config.local_retention_bytes != -2:
        size_limit = config.local_retention_bytes
    if copies and config.local_retention_ms != -2:
        time_limit = config.local_retention_ms
    gone = 0
    deletes = "delete" in config.cleanup_policy or (not config.cleanup_policy and copies)
    for limit in ("start", "size", "time") if deletes else ("start",):
        over = model.size - size_limit

        def breaches(segment: ModelSegment, following: int | None, limit: str = limit) -> bool:
            nonlocal over
            if limit == "start":
                start = model.local_log_start if tiered else model.log_start
                return following is not None and following <= start
            if limit == "time":
                if tiered and not copies and model.log_start < model.local_log_start:
                    return False  # what the tier has in front goes first
                return time_limit >= 0 and now_ms - segment.largest_timestamp_ms > time_limit
            if size_limit < 0 or over - segment.size < 0:
                return False
            over -= segment.size
            return True

        count, rolls = 0, False
        for at, segment in enumerate(model.segments):
            following = model.segments[at + 1].base_offset if at + 1 < len(model.segments) else None
            upper = model.end if following is None else following
            if model.high_watermark < upper or not breaches(segment, following):
                break
            rolls = rolls or (tiered and following is None and segment.size > 0)
            if following is None and not segment.batches:
                break
            is_copied = upper > 0 and upper - 1 <= model.highest_remote
            if copies and not is_copied and not (following is not None and model.log_start >= following):
                break
            count += 1
        if rolls:
            model.roll(model.end, now_ms)
        model.drop_segments(count, now_ms=now_ms, moves_local_alone=copies)
        gone += count
    return gone


CHANGES: tuple[dict[str, Any], ...] = (
    {"segment_bytes": 900},
    {"segment_bytes": 4000},
    {"segment_ms": 3_500},
    {"segment_ms": DAY_MS},
    {"retention_bytes": 1500},
    {"retention_bytes": -1},
    {"retention_ms": 10_000},
    {"retention_ms": -1},
    {"message_timestamp_type": "LogAppendTime"},
    {"message_timestamp_type": "CreateTime"},
    {"compression_type": "gzip"},
    {"compression_type": "producer"},
    {"flush_messages": 3},
    {"cleanup_policy": frozenset()},
    {"cleanup_policy": frozenset(("delete",))},
    {"local_retention_bytes": 400},
    {"local_retention_bytes": -2},
    {"local_retention_ms": 2_000},
    {"remote_log_copy_disable": True},
    {"remote_log_copy_disable": False},
)


class LogMachine(AppendedLog):
    """Appends between everything else that happens to a log, and all questions that it answers."""

    @initialize(tiered=st.booleans(), verifies=st.booleans(), seed=st.integers(0, 999), lived=st.integers(0, 15))
    def begin(self, tiered: bool, verifies: bool, seed: int, lived: int = 0) -> None:
        super().begin(tiered, verifies, seed)
        self.live_for_a_while(seed, lived, is_replicated=True)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.check_everything()
        super().teardown()

    # ---- the log moves

    @rule(seed=st.integers(0, 1 << 16), count=st.integers(1, 15), is_replicated=st.sampled_from([True, True, False]))
    def live_for_a_while(self, seed: int, count: int, is_replicated: bool) -> None:
        """What a partition gets between two events; without it most logs stay empty, and nothing can go wrong."""
        rng = random.Random(seed)
        for _ in range(count):
            specs = [(rng.randrange(4000), rng.choice((0, 3, 90))) for _ in range(rng.randint(1, 4))]
            match rng.randrange(6):
                case 0:
                    self.append_idempotent(rng.choice(IDEMPOTENT), specs, 0)
                case 1:
                    self.append_in_a_transaction(rng.choice(TRANSACTIONAL), specs, verified=True)
                case 2:
                    self.end_transaction(rng.choice(TRANSACTIONAL), commits=rng.random() < 0.3, coordinator=0)
                case 3:
                    self.lead_in_a_new_epoch()
                case _:
                    self.append(specs, "none")
        if is_replicated:
            self.set_high_watermark(0)

    @rule()
    def lead_in_a_new_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_epoch_start_offset(self.epoch, self.model.end)
        self.model.assign_epoch(self.epoch, self.model.end)

    @rule()
    def roll(self) -> None:
        assert self.log.roll().base_offset == self.model.end
        self.model.roll(self.model.end, self.now_ms)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.model.end

    @rule(seconds=st.sampled_from([0.5, 4, 12]))
    def wait(self, seconds: float) -> None:
        self.machine.clock.sleep(seconds)

    @rule(behind=st.integers(-2, 12))
    def set_high_watermark(self, behind: int) -> None:
        self.model.set_high_watermark(self.model.end - behind)
        assert self.log.update_high_watermark(self.log.log_end_offset - behind) == self.model.high_watermark

    @rule(ahead=st.integers(-1, 12))
    def raise_high_watermark(self, ahead: int) -> None:
        old, offset = self.model.high_watermark, self.model.high_watermark + ahead
        if offset > self.model.end:
            with pytest.raises(ValueError, match=str(offset)):
                self.log.maybe_increment_high_watermark(offset)
            return
        assert self.log.maybe_increment_high_watermark(offset) == (old if ahead > 0 else None)
        if ahead > 0:
            self.model.set_high_watermark(offset)

    @rule(ahead=st.integers(-1, 9))
    def delete_records(self, ahead: int) -> None:
        offset = self.model.log_start + ahead
        if offset > self.model.high_watermark:
            with pytest.raises(OffsetOutOfRangeError):
                self.log.maybe_increment_log_start_offset(offset, "a test")
            return
        rose = self.model.raise_log_start(offset, tiered=self.tiered)
        assert self.log.maybe_increment_log_start_offset(offset, "a test") == rose

    @precondition(lambda self: self.tiered)
    @rule(behind=st.integers(0, 8))
    def copy_to_the_tier(self, behind: int) -> None:
        offset = self.model.active.base_offset - 1 - behind
        self.log.update_highest_offset_in_remote_storage(offset)
        self.model.highest_remote = max(self.model.highest_remote, offset)

    @precondition(lambda self: self.tiered)
    @rule(ahead=st.integers(0, 6))
    def delete_in_the_tier(self, ahead: int) -> None:
        offset = self.model.log_start + ahead
        if offset <= self.model.high_watermark:
            self.model.raise_log_start(offset, tiered=True)
            self.log.update_log_start_offset_from_remote_tier(offset)

    @rule()
    def retain(self) -> None:
        before = self.log.offsets
        gone = apply_retention(self.model, self.config, tiered=self.tiered, now_ms=self.now_ms)
        assert self.log.delete_old_segments() == gone, before

    @rule(change=st.sampled_from(CHANGES))
    def change_config(self, change: dict[str, Any]) -> None:
        changed = replace(self.config, **change)
        if changed.remote_log_copy_disable:
            changed = replace(changed, local_retention_bytes=-2, local_retention_ms=-2)
        if changed.local_retention_bytes > changed.retention_bytes >= 0:
            changed = replace(changed, local_retention_bytes=-2)
        if changed.local_retention_ms > changed.retention_ms >= 0:
            changed = replace(changed, local_retention_ms=-2)
        self.config = changed
        self.log.update_config(changed)

    @rule(back=st.integers(-1, 25))
    def truncate(self, back: int) -> None:
        offset = max(0, self.model.end - back)
        note(f"truncate to {offset}")
        self.held.clear()
        cut = self.model.truncate(offset, now_ms=self.now_ms, tiered=self.tiered)
        assert self.log.truncate_to(offset) == cut
        if self.tiered and cut:  # Kafka leaves the local log start where it is, even behind the end
            self.model.local_log_start = self.log.local_log_start_offset

    @precondition(lambda self: len(self.model.segments) > 2)  # and not again and again
    @rule(ahead=st.integers(-20, 20), keeps_start=st.booleans())
    def truncate_fully(self, ahead: int, keeps_start: bool) -> None:
        offset = max(0, self.model.end + ahead)
        start = min(self.model.log_start, offset) if keeps_start and self.tiered else None
        self.held.clear()
        self.model.start_anew(offset, start, now_ms=self.now_ms, tiered=self.tiered)
        self.log.truncate_fully_and_start_at(offset, start)

    @rule()
    def expire_producers(self) -> None:
        self.machine.clock.sleep(DAY_MS / 1000 + 10)
        idle = [producer for producer in self.model.producers.values() if producer.open_from is None]
        assert self.log.remove_expired_producers() >= len(idle)
        self.model.forget_idle_producers()

    @rule(clean=st.booleans(), flushed=st.booleans())
    def reopen(self, clean: bool, flushed: bool) -> None:
        self.held.clear()
        if clean:
            self.log.close()
        point = self.log.recovery_point if clean or flushed else None  # unknown: a follower's offsets have holes
        model, start = self.model, self.model.log_start
        self.open(LogCheckpoints(point, start, model.high_watermark), clean=clean)
        model.reopen(recovered_from=None if clean else point or 0, now_ms=self.now_ms, tiered=self.tiered)

    # ---- asking

    @rule(
        at=st.integers(-1, 40),
        isolation=st.sampled_from(FetchIsolation),
        max_bytes=st.sampled_from([0, 1, 70, 300, 5000]),
        min_one=st.booleans(),
    )
    def read(self, at: int, isolation: FetchIsolation, max_bytes: int, min_one: bool) -> None:
        start = max(0, self.model.log_start + at)
        self.check_read(min(start, self.model.end + 1), isolation, max_bytes, min_one)

    def check_read(self, start: int, isolation: FetchIsolation, max_bytes: int, min_one: bool) -> int | None:
        """Compares one read; where the next one goes on, None at the end."""
        model = self.model
        if not max(model.log_start, model.segments[0].base_offset) <= start <= model.end:
            with pytest.raises(OffsetOutOfRangeError) as caught:
                self.log.read(start, max_bytes=max_bytes, isolation=isolation, min_one_message=min_one)
            assert (caught.value.offset, caught.value.log_end_offset) == (start, model.end)
            return None
        limit = {
            FetchIsolation.LOG_END: model.end,
            FetchIsolation.HIGH_WATERMARK: model.high_watermark,
            FetchIsolation.TXN_COMMITTED: self.log.last_stable_offset,
        }[isolation]
        found = self.log.read(start, max_bytes=max_bytes, isolation=isolation, min_one_message=min_one)
        wanted = expected_read(model, start, limit=limit, max_bytes=max_bytes, min_one_message=min_one)
        assert found.start_offset == start
        committed = isolation is FetchIsolation.TXN_COMMITTED
        assert (found.aborted_transactions is not None) == committed
        if wanted is None:
            assert not found.records or found.size_bytes == 0
            return None
        assert found.records, wanted
        assert bytes(found.records[0].read()) == wanted.data
        assert (found.segment_base_offset, found.position) == (wanted.segment_base_offset, wanted.position)
        assert found.first_entry_incomplete == wanted.first_entry_incomplete
        self.held = [*self.held[-3:], (found.records[0], wanted.data)]
        whole = self.whole_batches(wanted.data)
        last = whole[-1].last_offset if whole else start
        if committed:
            got = {(pid, first) for pid, first in found.aborted_transactions or ()}
            touching = [a for a in self.known_aborted() if a.last_offset >= start]
            assert {(a.producer_id, a.first_offset) for a in touching if a.first_offset <= last} <= got
            known = {pair for pair in got if pair[0] not in model.unknown}  # a start may be in front of the log's
            assert known <= {(a.producer_id, a.first_offset) for a in model.aborted if a.last_offset >= start}
        return last + 1 if whole else None

    def whole_batches(self, data: bytes) -> list[ModelBatch]:
        whole, at = [], 0
        for batch in self.model.batches:
            if data[at : at + batch.size] == batch.data:
                whole.append(batch)
                at += batch.size
        return whole

    def known_aborted(self) -> list[Any]:
        return [a for a in self.model.aborted if a.producer_id not in self.model.unknown]

    @rule(age_ms=st.integers(-100, 20_000))
    def look_up_a_timestamp(self, age_ms: int) -> None:
        found = self.log.fetch_offset_by_timestamp(self.now_ms - age_ms)
        assert found == expected_offset_for(self.model, self.now_ms - age_ms)

    @rule()
    def look_up_special_timestamps(self) -> None:
        model, ask = self.model, self.log.fetch_offset_by_timestamp
        first = model.epochs[0] if model.epochs else None
        first_epoch = first[0] if first and first[1] <= model.log_start else None
        latest = model.epochs[-1][0] if model.epochs else None
        assert ask(-1) == (-1, model.end, latest)
        assert ask(-2) == (-1, model.log_start, first_epoch)
        greatest = ask(-3)
        assert (greatest and greatest[:2]) == expected_greatest(model)
        remote = model.highest_remote
        if not self.tiered:
            assert ask(-4) == ask(-2)
            assert ask(-5) == ask(-6) == (-1, -1, -1)
            return
        assert ask(-4) == (-1, model.local_log_start, model.epoch_for_offset(model.local_log_start))
        assert ask(-5) == (-1, remote, -1 if remote == -1 else model.epoch_for_offset(remote))
        pending = max(remote + 1, model.log_start)
        if remote >= 0:
            assert ask(-6) == (-1, pending, model.epoch_for_offset(pending))
        elif model.local_log_start == model.log_start:
            assert ask(-6) == ask(-2)
        else:
            assert ask(-6) == (-1, -1, -1)

    @rule(start=st.integers(0, 60), count=st.integers(1, 60))
    def collect_aborted(self, start: int, count: int) -> None:
        model = self.model
        start = max(start, model.log_start, model.segments[0].base_offset)
        end = min(start + count, model.end)
        if start >= end:
            return
        got = set(self.log.collect_aborted_transactions(start, end))
        touching = {
            (a.producer_id, a.first_offset, a.last_offset)
            for a in self.known_aborted()
            if a.last_offset >= start and a.first_offset < end
        }
        assert touching <= got
        everything = {(a.producer_id, a.first_offset, a.last_offset) for a in model.aborted}
        assert got <= everything or model.unknown

    # ---- after every step

    @invariant()
    def has_the_same_offsets(self) -> None:
        if not hasattr(self, "log"):
            return
        model, offsets = self.model, self.log.offsets
        assert offsets.log_end_offset == model.end
        assert offsets.log_start_offset == model.log_start
        assert offsets.local_log_start_offset == model.local_log_start
        assert offsets.high_watermark == model.high_watermark
        assert offsets.highest_offset_in_remote_storage == model.highest_remote
        low, high = model.last_stable_bounds()
        assert low <= offsets.last_stable_offset <= high
        assert offsets.recovery_point <= offsets.log_end_offset
        assert self.heard[-1] == offsets, "a listener was not told"
        assert [s.base_offset for s in self.log.log_segments()] == [s.base_offset for s in model.segments]
        assert [s.size_bytes for s in self.log.log_segments()] == [s.size for s in model.segments]
        assert self.log.size() == model.size
        assert list(self.log.leader_epoch_cache.epochs) == model.epochs
        for slice_, data in self.held:
            assert bytes(slice_.read()) == data, "bytes that were handed out have changed"

    @invariant()
    def has_the_same_files(self) -> None:
        """One log and two indexes a segment, a snapshot in front of each but the first, and nothing else."""
        if not hasattr(self, "log"):
            return
        names = self.files()
        bases = {f"{segment.base_offset:020d}" for segment in self.model.segments}
        for suffix in ("log", "index", "timeindex"):
            assert {name[:20] for name in names if name.endswith(f".{suffix}")} == bases
        snapshots = {name[:20] for name in names if name.endswith(".snapshot")}
        start = self.model.log_start  # Kafka keeps none at the log start when it loads
        needed = [segment.base_offset for segment in self.model.segments[1:] if segment.base_offset > start]
        assert {f"{base_offset:020d}" for base_offset in needed} <= snapshots
        known = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")
        assert all(name.endswith((*known, "partition.metadata", TIER_START_FILE)) for name in names), names
        assert (TIER_START_FILE in names) <= self.tiered

    def check_everything(self) -> None:
        """Reads the whole log in all isolations, and asks for all epochs."""
        for isolation in FetchIsolation:
            at: int | None = max(self.model.log_start, self.model.segments[0].base_offset)
            while at is not None:
                at = self.check_read(at, isolation, 200, min_one=True)
        for epoch in range(-1, self.epoch + 2):
            assert self.log.end_offset_for_epoch(epoch) == self.model.end_offset_for_epoch(epoch)


SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def test_the_log_does_as_a_list_does() -> None:
    """Else a record is lost, doubled, or read by who must not see it, after some order of ordinary events."""
    run_state_machine_as_test(LogMachine, settings=settings(max_examples=70, stateful_step_count=40, **SETTINGS))


@pytest.mark.slow
def test_the_log_does_as_a_list_does_for_longer() -> None:
    """The same, for minutes: orders of events that are rare."""
    run_state_machine_as_test(LogMachine, settings=settings(max_examples=1500, stateful_step_count=80, **SETTINGS))
