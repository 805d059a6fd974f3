"""One log, asked in words: Kafka's UnifiedLog in a JVM and ours, with the same commands and the same answers.

An answer is what the command gave, " | " and all that the log tells of itself: its offsets, its segments, its epochs
and its producers.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Callable, Mapping

from tests.support.broker_logs import ToldClock
from tierlog._native.checksums import crc32c
from tierlog.errors import CorruptRecordError, TierlogError
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot, parse_producer_snapshot
from tierlog.log.local.compaction.cleanable_logs import CleanableOffsets, LogToClean, find_cleanable_offsets
from tierlog.log.local.compaction.cleaner import Cleaner
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import AppendRefusedError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.recovery.tier_start import TIER_START_FILE
from tierlog.log.local.unified_log import LogAppendInfo, ProducerSettings, UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.posix_files import PosixFiles

#: Kafka's answer to what has no code of its own.
UNKNOWN_SERVER_ERROR = -1
#: Ours where a batch on the disk is damaged: Kafka has several answers.
CORRUPT = "corrupt"
EPOCHS = "leader-epoch-checkpoint"
#: An entry of a transaction index: its version, the producer, the transaction's first and last offset, a stable offset.
ABORTED_ENTRY = struct.Struct(">hqqqq")


def config_of(words: str) -> LogConfig:
    """A configuration of ours from ``key=value;key=value`` in Kafka's names."""
    return LogConfig.from_kafka(dict(word.split("=", 1) for word in words.split(";") if word))


class OurLog:
    """Ours, asked in the same words."""

    def __init__(self, files: Files | None = None) -> None:
        self.clock = ToldClock()
        self.machine = Machine(clock=self.clock, files=files or PosixFiles())
        self.log: UnifiedLog | None = None
        self._commands: Mapping[str, Callable[..., str]] = {
            "open": self._open,
            "leader": self._leader,
            "follower": self._follower,
            "read": self._read,
            "list": self._list,
            "restart": self._restart,
            "fromtier": self._from_tier,
            "aborted": self._aborted,
            "config": self._config,
            "cleanable": self._cleanable,
            "clean": self._clean,
            "epoch": self._epoch,
            "state": self._state_alone,
            "close": self._close,
            "drop": self._close,
        }

    def ask(self, *words: object) -> str:
        name, *asked = (str(word) for word in words)
        if name == "time":
            self.clock.now_ms = int(asked[0])
            return f"done | {self._state()}"
        try:
            told = self._commands[name](*asked) if name in self._commands else self._simple(name, *asked)
        except AppendRefusedError as refused:
            records = ",".join(str(error.batch_index) for error in refused.record_errors)
            told = f"refused {int(refused.error)} {records}"
        except CorruptRecordError:
            told = f"refused {CORRUPT} "
        except TierlogError as refused:
            told = f"refused {int(getattr(refused, 'error', UNKNOWN_SERVER_ERROR))} "
        except ValueError:
            told = f"refused {UNKNOWN_SERVER_ERROR} "
        return f"{told} | {self._state()}"

    @property
    def _log(self) -> UnifiedLog:
        assert self.log is not None
        return self.log

    # ---- commands

    def _open(
        self,
        folder: str,
        config: str,
        log_start: str,
        recovery_point: str,
        high_watermark: str,
        clean: str,
        topic_id: str,
        tiered: str,
        verification: str,
    ) -> str:
        self.log = UnifiedLog.open(
            folder,
            machine=self.machine,
            config=config_of(config),
            producer_settings=ProducerSettings(transaction_partition_verification_enable=verification == "1"),
            checkpoints=LogCheckpoints(
                recovery_point=int(recovery_point), log_start_offset=int(log_start), high_watermark=int(high_watermark)
            ),
            had_clean_shutdown=clean == "1",
            topic_id=None if topic_id == "-" else Uuid.from_text(topic_id),
            remote_log_enabled=tiered == "1",
            write_checkpoints=lambda: None,  # the next opening's words have what this log told last
        )
        return "open"

    def _leader(self, data: str, epoch: str, origin: str, version: str, verify: str) -> str:
        batch = bytearray.fromhex(data if data != "-" else "")
        guard = None
        if verify == "1":
            guard = self._log.begin_transaction_verification(
                int.from_bytes(batch[43:51], "big", signed=True),
                sequence=int.from_bytes(batch[53:57], "big", signed=True),
                producer_epoch=int.from_bytes(batch[51:53], "big", signed=True),
                supports_epoch_bump=version == "2",
            )
        info = self._log.append_as_leader(
            batch,
            leader_epoch=int(epoch),
            origin=AppendOrigin[origin],
            verification_guard=guard,
            transaction_version=int(version),
        )
        if info.is_duplicate:
            return f"duplicate {info.first_offset} {info.last_offset}"
        return _taken(info)

    def _follower(self, data: str, epoch: str) -> str:
        batches = bytearray.fromhex(data if data != "-" else "")
        return _taken(self._log.append_as_follower(batches, leader_epoch=int(epoch)))

    def _read(self, offset: str, max_bytes: str, isolation: str, min_one: str) -> str:
        found = self._log.read(
            int(offset), max_bytes=int(max_bytes), isolation=FetchIsolation[isolation], min_one_message=min_one == "1"
        )
        data = b"" if not found.records else bytes(found.records[0].read())
        aborted = found.aborted_transactions
        told = "-" if aborted is None else ",".join(f"{producer}:{first}" for producer, first in aborted)
        place = f"{found.segment_base_offset} {found.position}"
        return f"read {place} {len(data)} {crc32c(data)} {int(found.first_entry_incomplete)} {told}"

    def _list(self, timestamp: str) -> str:
        found = self._log.fetch_offset_by_timestamp(int(timestamp))
        if found is None:
            return "none"
        epoch = "none" if found.leader_epoch is None else found.leader_epoch
        return f"found {found.timestamp_ms} {found.offset} {epoch}"

    def _restart(self, offset: str, log_start: str) -> str:
        self._log.truncate_fully_and_start_at(int(offset), None if log_start == "-" else int(log_start))
        return "done"

    def _from_tier(self, offset: str, log_start: str, epochs: str) -> str:
        files = self.machine.files
        known = [each.path for each in files.iter_directory(self._log.folder) if each.name.endswith(".snapshot")]
        producers = files.read_whole(known[-1]) if known else encode_producer_snapshot(())
        pairs = [entry.split(":") for entry in epochs.split(",") if epochs != "-"]
        entries = [(int(epoch), int(start)) for epoch, start in pairs]
        self._log.start_from_tier(
            int(offset), log_start_offset=int(log_start), epochs=entries, producer_snapshot=producers
        )
        return "done"

    def _aborted(self, start: str, upper: str) -> str:
        found = self._log.collect_aborted_transactions(int(start), int(upper))
        return "aborted" + "".join(f" {producer}:{first}:{last}" for producer, first, last in found)

    def _config(self, words: str) -> str:
        self._log.update_config(config_of(words))
        return "done"

    def _epoch(self, epoch: str, start_offset: str) -> str:
        self._log.assign_epoch_start_offset(int(epoch), int(start_offset))
        return "done"

    def _close(self) -> str:
        self._log.close()
        self.log = None
        return "done"

    def _state_alone(self) -> str:
        return "state"

    def _cleanable(self, checkpoint: str) -> str:
        log, now_ms = self._log, self.clock.now_ms
        with log.reading() as state:
            offsets = find_cleanable_offsets(state, log.config, None if checkpoint == "-" else int(checkpoint), now_ms)
            found = LogToClean.of((log.topic, log.partition), log, state, offsets, now_ms)
        sizes = f"{found.first_uncleanable_offset} {found.clean_bytes} {found.cleanable_bytes} {found.delay_ms}"
        return f"cleanable {offsets[0]} {offsets[1]} {int(offsets[2])} {sizes}"

    def _clean(self, first_dirty: str, end: str, map_bytes: str, buffer_bytes: str) -> str:
        log, now_ms = self._log, self.clock.now_ms
        with log.reading() as state:
            offsets = CleanableOffsets(int(first_dirty), int(end), is_reset=False)
            found = LogToClean.of((log.topic, log.partition), log, state, offsets, now_ms)
        cleaner = Cleaner(
            self.machine,
            dedupe_buffer_bytes=int(map_bytes),
            load_factor=0.9,
            io_buffer_bytes=int(buffer_bytes),
            throttle=lambda _: None,
            check_done=lambda: None,
        )
        done = cleaner.clean(
            log,
            first_dirty_offset=found.first_dirty_offset,
            first_uncleanable_offset=found.first_uncleanable_offset,
            now_ms=now_ms,
        )
        stats = done.stats
        messages = f"{stats.messages_read} {stats.messages_written} {stats.invalid_messages_read}"
        sizes = f"{stats.bytes_read} {stats.bytes_written} {stats.map_messages_read}"
        return f"cleaned {done.next_dirty_offset} {sizes} {messages}"

    def _simple(self, name: str, *asked: str) -> str:
        log = self._log
        number = int(asked[0]) if asked else -1
        match name:
            case "roll":
                return f"rolled {log.roll(number if asked else None).base_offset}"
            case "flush":
                log.flush()
            case "watermark":
                return f"at {log.update_high_watermark(number)}"
            case "raise":
                was = log.maybe_increment_high_watermark(number)
                return f"was {'none' if was is None else was}"
            case "start":
                return f"done {int(log.maybe_increment_log_start_offset(number, 'asked'))}"
            case "localstart":
                log.maybe_increment_local_log_start_offset(number, "asked")
            case "copied":
                log.update_highest_offset_in_remote_storage(number)
            case "remotestart":
                log.update_log_start_offset_from_remote_tier(number)
            case "truncate":
                return f"done {int(log.truncate_to(number))}"
            case "retention":
                return f"gone {log.delete_old_segments()}"
            case "unverify":
                log._contents.producers._verifications.clear()
            case "expire":
                log.remove_expired_producers()
            case "epochend":
                return "end {} {}".format(*log.end_offset_for_epoch(number))
            case _:
                raise NotImplementedError(name)
        return "done"

    def _state(self) -> str:
        if self.log is None:
            return "closed"
        log, at = self.log, self.log.offsets
        local = at.local_log_start_offset if log.remote_log_enabled() else -1
        words = [at.log_start_offset, local, at.last_stable_offset, at.high_watermark, at.log_end_offset]
        words += [max(at.recovery_point, log.log_segments()[0].base_offset), at.highest_offset_in_remote_storage]
        told = " ".join(map(str, words)) + " |"
        for segment in log.log_segments():
            largest = segment.largest_record_timestamp
            told += f" {segment.base_offset}:{segment.size_bytes}:{-1 if largest is None else largest[0]}"
        told += " |" + "".join(f" {entry.epoch}:{entry.start_offset}" for entry in log.leader_epoch_cache.epochs)
        return told + " |" + _producers(log)


def _producers(log: UnifiedLog) -> str:
    state = log._contents.producers  # a snapshot as one would be written now: nobody else asks for it
    return "".join(
        f" {p.producer_id}:{p.producer_epoch}:{p.last_sequence}:{p.last_offset}:{p.offset_delta}:{p.timestamp_ms}"
        f":{p.coordinator_epoch}:{p.transaction_first_offset}:{len(state.producers[p.producer_id].batches)}"
        for p in sorted(state.snapshot(), key=lambda p: p.producer_id)
    )


def _taken(info: LogAppendInfo) -> str:
    offsets = f"{info.first_offset} {info.last_offset}"
    return f"taken {offsets} {info.max_timestamp_ms} {info.log_append_time_ms}"


# ---- files


def files_of(folder: pathlib.Path) -> dict[str, object]:
    """The files of a log by name, in a form in which Kafka's and ours are equal: an index of an active segment without
    the zeros behind its entries, the entries of a producer snapshot in order. Kafka makes an index when it is asked for
    the first time, and the epochs' checkpoint in any case: empty ones do not count. Nor does ``start-from-tier``, which
    Kafka passes over, of a log that has begun: it has the log start that the directory's checkpoint is yet to get.
    """
    found: dict[str, object] = {}
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        if path.name == TIER_START_FILE and b'"state":"started"' in data:
            continue
        if path.suffix == ".index":
            found[path.name] = _entries(data, 8)
        elif path.suffix == ".timeindex":
            found[path.name] = _entries(data, 12)
        elif path.suffix == ".txnindex" and len(data) % ABORTED_ENTRY.size == 0:
            # Kafka's stable offset may lie behind the marker.
            rows = ABORTED_ENTRY.iter_unpack(data)
            found[path.name] = [(*row, last, min(stable, last + 1)) for *row, last, stable in rows]
        elif path.suffix == ".snapshot" and data:
            found[path.name] = sorted(parse_producer_snapshot(data).entries, key=lambda entry: entry.producer_id)
        else:
            found[path.name] = data.hex()
        if not found[path.name] and (path.suffix in (".index", ".timeindex") or path.name == EPOCHS):
            del found[path.name]
    return found


def _entries(data: bytes, size: int) -> list[str]:
    entries = [data[at : at + size] for at in range(0, len(data), size)]
    while entries and not any(entries[-1]):
        entries.pop()
    return [entry.hex() for entry in entries]
