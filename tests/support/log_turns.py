"""Random turns of a log's life, from a seed: what a broker, its clients and its crashes do to it."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tierlog._native.checksums import crc32c
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
from tierlog.records.control import ControlRecordType

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
TOPIC_ID = "ASNFZ4mrze8RIjNEVWZ3iA"
ISOLATIONS = ["LOG_END", "HIGH_WATERMARK", "TXN_COMMITTED"]
#: Kafka's special timestamps, and one that is none.
LIST_OFFSETS = [-1, -2, -3, -4, -5, -6, -7]
PRODUCERS = [1, 2, 3, 4, 5, 6]

Command = tuple[object, ...]


@dataclass(frozen=True)
class ToldProducer:
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    coordinator_epoch: int
    transaction_first_offset: int


@dataclass(frozen=True)
class Told:
    """What a log tells of itself, taken apart."""

    log_start: int = 0
    local_start: int = -1
    stable: int = 0
    high: int = 0
    end: int = 0
    recovery: int = 0
    copied: int = -1
    bases: tuple[int, ...] = (0,)
    epoch: int = 0
    producers: dict[int, ToldProducer] = field(default_factory=dict)

    @classmethod
    def of(cls, answer: str) -> Told:
        """Of a log that is closed, as of an empty one."""
        return cls.find(answer) or cls()

    @classmethod
    def find(cls, answer: str) -> Told | None:
        """None of a log that is closed."""
        parts = [part.split() for part in answer.split("|")[1:]]
        if len(parts) < 4:
            return None
        log_start, local_start, stable, high, end, recovery, copied = map(int, parts[0])
        producers = {}
        for word in parts[3]:
            numbers = [int(number) for number in word.split(":")]
            producers[numbers[0]] = ToldProducer(*numbers[:5], *numbers[6:8])
        bases = tuple(int(word.split(":")[0]) for word in parts[1])
        epoch = int(parts[2][-1].split(":")[0]) if parts[2] else 0
        return cls(log_start, local_start, stable, high, end, recovery, copied, bases, epoch, producers)


class Turns:
    """Commands for one log, each by what the log told last.

    Args:
        rng: All chance.
        tiered: Whether the log is of a topic with remote storage.
    """

    def __init__(self, rng: random.Random, *, tiered: bool) -> None:
        self.rng = rng
        self.tiered = tiered
        self.now = START_MS
        self.verification = int(rng.random() < 0.2)
        self.topic_id = rng.choice(["-", TOPIC_ID])
        self.policy = rng.choice(["delete"] * 4 + ["compact", "compact", "compact,delete", ""])
        if tiered:
            self.policy = "delete"
        #: A batch of which a cleaner leaves a part is compressed anew, and no two libraries do that alike. Kafka's
        #: cleaner fails where an index is full.
        self.is_cleaned = "compact" in self.policy and rng.random() < 0.9
        #: Up to where the log is compacted: the cleaner's checkpoint.
        self.clean_end = 0
        self.append_time = rng.random() < 0.15
        #: Share of the producers' batches that are of a transaction: in half of the lives several are often open.
        self.transactional = rng.choice([0.4, 0.9]) * (0.5 if self.is_cleaned else 1.0)
        #: A follower's append of several batches ends in the middle where an index of Kafka's has no room for all.
        self.index_bytes = 4096 if self.is_cleaned else rng.choice([36, 96, 4096, 4096, 4096])
        self.told = Told()
        #: Where batches end.
        self.borders: set[int] = set()
        self._kinds = self._all_kinds()

    def learn(self, answer: str) -> None:
        """Take what a log told."""
        self.told = Told.find(answer) or self.told
        if answer.startswith("cleaned "):
            self.clean_end = int(answer.split(" ")[1])
        self.clean_end = min(self.clean_end, self.told.end)
        self.borders = {border for border in self.borders if border < self.told.end} | {self.told.end}

    def config(self) -> str:
        rng = self.rng
        settings: dict[str, object] = {
            "internal.segment.bytes": rng.choice([400, 700, 1000, 3000]),
            "segment.index.bytes": self.index_bytes,
            "index.interval.bytes": rng.choice([0, 1, 150, 1000]),
            "segment.ms": rng.choice([3000, 20000, DAY_MS]),
            "retention.bytes": rng.choice([-1, 500, 1500]),
            "retention.ms": rng.choice([-1, 5000, 40000]),
            "flush.messages": rng.choice([1, 5, 2**62]),
            "max.message.bytes": rng.choice([600, 1048588]),
            "file.delete.delay.ms": 0,
            "cleanup.policy": self.policy,
            "message.timestamp.after.max.ms": rng.choice([3000, 3600000]),
            "message.timestamp.before.max.ms": rng.choice([60000, 2**62]),
        }
        if self.append_time:
            settings["message.timestamp.type"] = "LogAppendTime"
        if self.tiered:
            settings["remote.storage.enable"] = "true"
            settings["local.retention.bytes"] = rng.choice([-2, 400]) if settings["retention.bytes"] != -1 else -2
            settings["local.retention.ms"] = rng.choice([-2, 3000]) if settings["retention.ms"] != -1 else -2
            settings["remote.log.copy.disable"] = "false"
        elif rng.random() < 0.1:
            settings["compression.type"] = "uncompressed"
        return ";".join(f"{key}={value}" for key, value in settings.items())

    # ---- what comes in

    def _builder(self, base_offset: int, **more: object) -> RecordBatchBuilder:
        codec = self.rng.choice(["none"] * 4 + ["gzip", "snappy", "lz4", "zstd"])
        codec = "none" if self.is_cleaned else codec
        return RecordBatchBuilder(base_offset, codec=codec, **more)  # type: ignore[arg-type]

    def _fill(self, builder: RecordBatchBuilder, count: int) -> bytes:
        rng, gaps = self.rng, builder.base_offset > 0
        for _ in range(count):
            time = self.now + rng.choice(
                [0, 0, 0, 1, -1, 500, -5000, 2999, 4000] + [-self.now - 1] * (rng.random() < 0.2)
            )
            key = rng.choice([b"k1", b"k2", b"k" * 30, None if rng.random() < 0.1 else b""])
            offset = builder.next_offset + int(gaps and rng.random() < 0.1)
            value = rng.choice([None, b"", b"v" * rng.randint(1, 120)])
            builder.append(key, value, timestamp_ms=time, offset=offset)
        return builder.build()

    def _sequence(self, producer: int, count: int) -> tuple[int, int, int, bool]:
        """(epoch, sequence, count, whether transactional) of a producer's next batch, mostly as it should be."""
        rng, known = self.rng, self.told.producers.get(producer)
        if known is None:
            return rng.choice([0, 0, 0, 1]), rng.choice([0, 0, 0, 7]), count, rng.random() < self.transactional
        open_now = known.transaction_first_offset >= 0
        transactional = rng.random() < (0.95 if open_now else self.transactional)
        following = (known.last_sequence + 1) % 2**31
        if rng.random() < 0.1:  # again
            return known.epoch, max(known.last_sequence - known.offset_delta, 0), known.offset_delta + 1, transactional
        if rng.random() < 0.12:  # wrong, or another epoch
            epoch = max(0, known.epoch + rng.choice([-1, 0, 1, 1]))
            return epoch, rng.choice([0, 0, following, following + 1, 5]), count, transactional
        return max(known.epoch, 0), following, count, transactional

    def _data(self, base_offset: int, *, epoch: int = -1) -> bytes:
        rng = self.rng
        producer, count = rng.choice([-1, -1, *PRODUCERS]), rng.randint(1, 5)
        if producer < 0:
            return self._fill(self._builder(base_offset, leader_epoch=epoch), count)
        producer_epoch, sequence, count, transactional = self._sequence(producer, count)
        builder = self._builder(
            base_offset,
            leader_epoch=epoch,
            producer_id=producer,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        data = self._fill(builder, min(count, 20))
        delta, known = int.from_bytes(data[23:27], "big"), self.told.producers.get(producer)
        last, begun = base_offset + delta, -1 if known is None else known.transaction_first_offset
        begun = base_offset if transactional and begun < 0 else begun
        coordinator = -1 if known is None else known.coordinator_epoch
        self._expect(ToldProducer(producer, producer_epoch, sequence + delta, last, delta, coordinator, begun))
        return data

    def _expect(self, producer: ToldProducer) -> None:
        """What a producer is once its batch is taken: for the next batch of the same append."""
        self.told = replace(self.told, producers={**self.told.producers, producer.producer_id: producer})

    def _marker(self, base_offset: int, *, epoch: int = -1) -> bytes:
        rng = self.rng
        opened = [p for p in self.told.producers.values() if p.transaction_first_offset >= 0]
        if opened and rng.random() < 0.9:
            known = rng.choice(opened)
            producer, producer_epoch, coordinator = known.producer_id, known.epoch, known.coordinator_epoch
        else:
            producer, producer_epoch, coordinator = rng.choice([*PRODUCERS, 7]), rng.choice([0, 0, 1]), 0
        producer_epoch = max(0, producer_epoch + rng.choice([0, 0, 0, 1]))
        coordinator = max(0, coordinator + rng.choice([0, 0, 0, 1, -1]))
        data = build_end_transaction_marker(
            base_offset,
            rng.choice([ControlRecordType.ABORT, ControlRecordType.COMMIT]),
            producer_id=producer,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator,
            timestamp_ms=self.now,
            leader_epoch=epoch,
        )
        if (known := self.told.producers.get(producer)) is not None:
            ended = replace(known, epoch=producer_epoch, coordinator_epoch=coordinator, transaction_first_offset=-1)
            self._expect(ended)
        return self._odd(data) if rng.random() < 0.04 else data

    def _odd(self, marker: bytes) -> bytes:
        """A control batch that ends no transaction: of another kind or version, or of no producer."""
        rng, odd = self.rng, bytearray(marker)
        key, value = len(odd) - 12, len(odd) - 7  # version and kind; version and coordinator's epoch
        match rng.choice(["kind", "key", "value", "nobody", "plain"]):
            case "kind":
                odd[key + 2 : key + 4] = rng.choice([-1, 2, 3, 6, 7, 300]).to_bytes(2, "big", signed=True)
            case "key":
                odd[key : key + 2] = rng.choice([-1, 1, 2]).to_bytes(2, "big", signed=True)
            case "value":
                odd[value : value + 2] = rng.choice([-1, 1, 2]).to_bytes(2, "big", signed=True)
            case "nobody":
                odd[43:57] = bytes([0xFF] * 14)
            case _:
                odd[22] &= ~0x10  # not transactional
        odd[17:21] = crc32c(memoryview(bytes(odd))[21:]).to_bytes(4, "big")
        return bytes(odd)

    def _spoiled(self, data: bytes) -> bytes:
        rng, spoiled = self.rng, bytearray(data)
        kind = rng.choice(["crc", "short", "base", "magic", "twice", "empty", "control"])
        if kind == "crc":
            spoiled[rng.randrange(17, len(spoiled))] ^= 1 << rng.randrange(8)
        elif kind == "short":
            del spoiled[rng.randrange(1, len(spoiled)) :]
        elif kind == "base":
            spoiled[7] = 3
        elif kind == "magic":
            spoiled[16] = rng.choice([0, 1, 3, 255])
        elif kind == "twice":
            spoiled += bytes(spoiled)
        elif kind == "empty":
            spoiled.clear()
        else:
            return self._marker(0)
        return bytes(spoiled)

    def leader(self) -> Command:
        rng = self.rng
        data = self._data(0)
        spoiled = rng.random() < 0.06
        if spoiled:
            data = self._spoiled(data)
        epoch = self.told.epoch + (rng.random() < 0.03)
        verify = int(not spoiled and rng.random() < 0.9) if self.verification else 0
        return "leader", data.hex() or "-", epoch, "CLIENT", rng.choice([0, 1, 2]), verify

    def marker(self) -> Command:
        return "leader", self._marker(0).hex(), self.told.epoch, "COORDINATOR", self.rng.choice([0, 1, 2]), 0

    def follower(self) -> Command:
        rng, offset, data = self.rng, self.told.end, b""
        epoch, now = self.told.epoch, self.told.epoch + rng.choice([0, 0, 1])
        if rng.random() < 0.05:
            offset = max(0, offset + rng.choice([-1, -3, 2]))
        for _ in range(rng.randint(1, 6)):
            epoch = min(now + (rng.random() < 0.05), epoch + (rng.random() < 0.1))
            stamped = -1 if rng.random() < 0.01 else epoch
            piece = self._marker(offset, epoch=stamped) if rng.random() < 0.2 else self._data(offset, epoch=stamped)
            data += piece
            offset += int.from_bytes(piece[23:27], "big") + 1
            if offset > self.told.end:
                self.borders.add(offset)
            offset += rng.choice([0] * 9 + [2])
        if rng.random() < 0.05:
            data = data[: rng.randrange(1, len(data))]
        if rng.random() < 0.03:
            spoiled = bytearray(data)
            spoiled[rng.randrange(len(spoiled))] ^= 1
            if not self._declares_too_much(spoiled):
                data = bytes(spoiled)
        return "follower", data.hex(), now

    @staticmethod
    def _declares_too_much(data: bytearray) -> bool:
        """Whether a damaged size reaches behind what was sent: then nothing is wrong yet."""
        return len(data) > 12 and int.from_bytes(data[8:12], "big") > 1 << 20

    # ---- what is done

    def any_offset(self) -> int:
        told = self.told
        return max(0, self.rng.choice([self.rng.randint(told.log_start - 2, told.end + 2), *told.bases, told.end]))

    def turn(self) -> Command:
        """One that a broker, a client or time may take."""
        weights = {kind: weight for kind, (weight, _) in self._kinds.items() if self._is_possible(kind)}
        kind = self.rng.choices(list(weights), list(weights.values()))[0]
        return self._kinds[kind][1]()

    def _is_possible(self, kind: str) -> bool:
        if kind in ("copied", "localstart", "remotestart", "fromtier"):
            return self.tiered
        if kind == "clean":
            return self.is_cleaned and self.first_uncleanable() > max(self.told.log_start, self.clean_end)
        return kind != "follower" or self.index_bytes >= 4096

    def _all_kinds(self) -> dict[str, tuple[int, Callable[[], Command]]]:
        """Kind → (how often, the command)."""

        def at(kind: str, limit: Callable[[], int] = lambda: 2**62) -> Callable[[], Command]:
            return lambda: (kind, min(self.any_offset(), limit()))

        return {
            "leader": (40, self.leader),
            "marker": (12, self.marker),
            "follower": (14, self.follower),
            "time": (12, self.later),
            "watermark": (12, lambda: ("watermark", self.any_border())),
            "raise": (3, lambda: ("raise", self.any_border())),
            "start": (3, at("start")),
            "truncate": (4, lambda: ("truncate", max(self.any_offset(), self.told.local_start))),
            "restart": (1, self.restart),
            "fromtier": (2, self.from_tier),
            "roll": (3, lambda: ("roll",)),
            "flush": (3, lambda: ("flush",)),
            "retention": (6, lambda: ("retention",)),
            "clean": (25, self.clean),
            "epoch": (3, lambda: ("epoch", self.told.epoch + self.rng.choice([1, 1, 0, 2]), self.told.end)),
            "expire": (1, lambda: ("expire",)),
            "config": (1, lambda: ("config", self.config())),
            "copied": (8, lambda: ("copied", self.rng.choice([base - 1 for base in self.told.bases[1:]] or [-1]))),
            # of what is in the tier: replicated and synced
            "localstart": (1, at("localstart", lambda: min(self.told.high, self.told.recovery))),
            "remotestart": (1, at("remotestart", lambda: self.told.high)),
        }

    def any_border(self) -> int:
        """A leader's high watermark is the end of a batch; Kafka's moves there when it is read."""
        return self.rng.choice([self.told.end] * 4 + sorted(self.borders) + [self.told.end + 3])

    def later(self) -> Command:
        self.now += self.rng.choice([1, 50, 1000, 7000] * 5 + [DAY_MS + 5])
        return "time", self.now

    def restart(self) -> Command:
        rng, told = self.rng, self.told
        offset = rng.choice([0, told.end, told.end + 7, self.any_offset()])
        return "restart", offset, "-" if not self.tiered else rng.choice(["-", min(told.log_start, offset)])

    def first_uncleanable(self) -> int:
        """The base of the segment that has the last stable offset, at most that of the active one."""
        return max((base for base in self.told.bases if base <= self.told.stable), default=0)

    def clean(self) -> Command:
        """Compact the log: mostly from the checkpoint on and as far as may be, with a map that has no room for all."""
        rng, told = self.rng, self.told
        end = self.first_uncleanable()
        begin = max(rng.choice([self.clean_end, self.clean_end, 0]), told.log_start)
        if rng.random() < 0.2:
            end = rng.choice([base for base in told.bases if begin < base <= end])
        map_bytes = 24 * rng.choice([3, 5, 12, 1000])
        return "clean", begin, end, map_bytes, rng.choice([5000, 1 << 16])

    def from_tier(self) -> Command:
        rng, end = self.rng, self.told.end
        offset = end + rng.choice([0, 0, 1, 7])
        log_start = rng.choice([self.told.log_start, offset])
        later = range(log_start + 1, offset)
        starts = sorted(rng.sample(later, min(rng.randint(0, 2), len(later))))
        epochs = enumerate([log_start, *starts] if log_start < offset else [])
        return "fromtier", offset, log_start, ",".join(f"{epoch}:{start}" for epoch, start in epochs) or "-"

    def questions(self) -> Iterator[Command]:
        rng = self.rng
        size = rng.choice([0, 1, 100, 500, 5000])
        yield "read", self.any_offset(), size, rng.choice(ISOLATIONS), rng.choice([0, 1])
        if rng.random() < 0.7:
            times = [
                self.now,
                self.now - 1000,
                self.now - 5000,
                self.now + 500,
                START_MS,
                rng.randint(START_MS, self.now),
            ]
            yield "list", rng.choice([*LIST_OFFSETS, *times])
        if rng.random() < 0.3:
            yield "epochend", rng.randint(-1, self.told.epoch + 1)
        if rng.random() < 0.3:
            start = max(self.any_offset(), self.told.log_start, self.told.bases[0])
            yield "aborted", start, start + rng.choice([1, 10, 100])

    # ---- ends and crashes

    def opening(self, folder: object, *, config: str, clean: bool) -> Command:
        """Open with the checkpoints that a broker may have written last."""
        rng, told = self.rng, self.told
        start = told.log_start if self.tiered or told.log_start > told.bases[0] else 0
        # Not in front of the log start: Kafka recovers what lies there without the producers before it.
        least = min(told.log_start if start else 0, told.recovery)
        recovery = told.recovery if clean else rng.choice([told.recovery, least, rng.randint(least, told.recovery)])
        words = (int(clean), self.topic_id, int(self.tiered), self.verification)
        return "open", folder, config, start, recovery, told.high, *words

    def damage(self, folder: pathlib.Path) -> str:
        """One thing that a crash, or a hand, does to a folder; which one."""
        rng = self.rng
        logs = sorted(folder.glob("*.log"))
        kind = rng.choice(
            ["cut", "flip", "zeros", "garbage", "lost", "snapshot", "deleted", "stray", "grown", "txnindex"]
        )
        last = logs[-1]
        data = bytearray(last.read_bytes())
        match kind:
            case "cut" if data:
                last.write_bytes(data[: rng.randrange(len(data))])
            case "flip" if data:
                chosen = rng.choice(logs)
                spoiled = bytearray(chosen.read_bytes() or b"x")
                spoiled[rng.randrange(len(spoiled))] ^= 1 << rng.randrange(8)
                chosen.write_bytes(spoiled)
            case "zeros":
                last.write_bytes(data + bytes(rng.choice([1, 11, 12, 61, 300])))
            case "garbage":
                last.write_bytes(data + rng.randbytes(rng.choice([1, 30, 200])))
            case "lost":
                chosen = rng.choice([p for p in sorted(folder.iterdir()) if p.suffix not in (".log", ".timeindex")])
                chosen.unlink()
                return f"lost {chosen.name}"
            case "snapshot":
                for path in sorted(folder.glob("*.snapshot"))[-rng.randint(1, 2) :]:
                    path.write_bytes(path.read_bytes()[: rng.choice([0, 5, 20])])
            case "deleted":
                chosen = logs[0]
                for path in folder.glob(f"{chosen.stem}.*"):
                    if len(logs) > 1 and path.suffix != ".snapshot":
                        path.rename(path.with_name(path.name + ".deleted"))
            case "stray":
                (
                    folder
                    / f"{rng.randrange(10**6):020d}{rng.choice(['.index', '.timeindex', '.snapshot', '.log.cleaned'])}"
                ).touch()
            case "grown":
                for path in folder.glob(f"{last.stem}.*index"):
                    path.write_bytes(path.read_bytes() + bytes(rng.choice([5, 24, 240])))
            case _:
                (folder / f"{last.stem}.txnindex").write_bytes(bytes(2) + rng.randbytes(rng.choice([32, 38])))
        return kind
