"""A cleaning beside Kafka's Cleaner over the same log: the same records, offsets, attributes, horizons and files.

``TIERLOG_LIVES`` is how many logs of each kind, ``TIERLOG_SEED`` which.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support import log_differences as rows
from tests.support.cleaned_batches import CleanedBatches
from tests.support.line_process import LineProcess, kafka_peer
from tests.support.log_peer import EPOCHS, OurLog, files_of
from tests.support.log_turns import START_MS, Told
from tierlog._native.batches import scan_batches
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.records.decoding import decode

pytestmark = pytest.mark.interop

LIVES = int(os.environ.get("TIERLOG_LIVES", "20"))
SEED = os.environ.get("TIERLOG_SEED", "27")
ROUNDS, TURNS = 4, 30
DELETE_RETENTION_MS = 5000
KINDS = {
    "plain": {},
    "compressed": {"codecs": ("none", "gzip", "snappy", "lz4", "zstd")},
    "legacy": {"magics": (0, 1)},
    "legacy compressed": {"magics": (0, 1), "codecs": ("none", "gzip", "snappy", "lz4")},
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LineProcess]:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")
    with kafka_peer(tmp_path_factory.mktemp("classes")) as peer:
        yield peer


def comparable(folder: pathlib.Path, *, has_codecs: bool) -> dict[str, object]:
    """The files by name; where Kafka compresses, its own streams differ from ours, and all positions behind them."""
    files = files_of(folder)
    if not has_codecs:
        return files
    found: dict[str, object] = {}
    for name, content in files.items():
        if name.endswith(".log"):
            data = (folder / name).read_bytes()
            columns = scan_batches(data)[0]
            assert columns["crc_ok"].all()
            headers = {key: columns[key].tolist() for key in columns if key not in ("position", "size_bytes", "crc")}
            rows = decode(data, columns=("offset", "timestamp", "timestampType", "key", "value", "headers"))
            found[name] = headers, rows.to_pylist()
        elif not name.endswith(("index", "timeindex")) or name.endswith("txnindex"):
            found[name] = content
    return found


def without_sizes(answer: str, *, has_codecs: bool) -> str:
    """An answer, of a log with streams that differ: without all bytes, and without the number of records of which a
    look-up in the index passed over some.
    """
    if not has_codecs:
        return answer
    words = answer.split(" ")
    if words[0] == "cleaned":
        words[2:5] = "000"
    answer, offsets, segments, *rest = " ".join(words).split(" | ", 3)
    return " | ".join([answer, offsets, re.sub(r":\d+:", ":0:", segments), *rest])


class _CannotBeEmptyError(Exception):
    pass


class Life:
    """One log, in a folder of each side."""

    def __init__(self, number: int, kind: str, theirs: LineProcess, folder: pathlib.Path) -> None:
        self.kind, self.number, self.sides = kind, number, (theirs, OurLog())
        self.rng = random.Random(f"{SEED}-{kind}-{number}")
        self.batches = CleanedBatches(self.rng, **KINDS[kind])
        self.has_codecs = "codecs" in KINDS[kind]
        self.now_ms, self.dirty, self.active = START_MS, 0, 0
        self.seen: Counter[str] = Counter()
        self.folders = [
            folder / side / f"{kind.replace(' ', '-')}-{number}" / "orders-0" for side in ("theirs", "ours")
        ]
        words = {
            "cleanup.policy": "compact",
            "delete.retention.ms": DELETE_RETENTION_MS,
            # By sizes of Kafka's streams it would group otherwise than by those of ours.
            "internal.segment.bytes": 1 << 20 if self.has_codecs else self.rng.choice([600, 1500, 6000]),
            "index.interval.bytes": self.rng.choice([1, 300, 4096]),
            # Kafka takes no set of several messages that an index has no room for.
            "segment.index.bytes": self.rng.choice([240, 1 << 20]) if kind == "plain" else 1 << 20,
            "message.timestamp.after.max.ms": 2**62,
        }
        config = ";".join(f"{name}={value}" for name, value in words.items())
        for side, path in zip(self.sides, self.folders, strict=True):
            path.mkdir(parents=True)
            side.ask("time", self.now_ms)
            side.ask("open", path, config, 0, 0, 0, 0, "-", 0, 0)

    def ask(self, *words: object) -> str:
        """The answer of both, with the state."""
        theirs, ours = self.sides
        answers = [theirs.ask(*words)]
        with contextlib.ExitStack() as difference:
            if words[0] == "clean" and rows.collects_ended(self.folders[1], int(str(words[1])), log_start=0):
                self.seen[rows.ENDED] += 1
                difference.enter_context(rows.collecting_ended())
            answers.append(ours.ask(*words))
        answers = [without_sizes(answer, has_codecs=self.has_codecs) for answer in answers]
        if self.kind.startswith("legacy") and words[0] == "clean" and answers[0].startswith("refused -1"):
            raise _CannotBeEmptyError  # Kafka cannot leave an empty batch of an old format, and never cleans the log
        assert answers[0] == answers[1], f"{self.kind} {self.number} {' '.join(map(str, words))[:80]}"
        return answers[0]

    def live(self) -> None:
        for _ in range(ROUNDS):
            self.append()
            for _ in range(self.rng.choice([1, 1, 2])):
                self.clean()
        for side in self.sides:
            side.ask("close")

    def append(self) -> None:
        for _ in range(TURNS):
            self.follow(self.batches.turn(self.now_ms))
            if self.rng.random() < (0.2 if self.has_codecs else 0.05):
                self.ask("roll")
        for marker in self.batches.end_all(self.now_ms):
            self.follow(marker)

    def follow(self, batch: bytes) -> None:
        theirs, ours = self.sides
        answers = [theirs.ask("follower", batch.hex(), 0)]
        if answers[0].startswith("refused 18 "):
            self.seen[rows.LARGE] += 1
            return
        answers.append(ours.ask("follower", batch.hex(), 0))
        if not all(answer.startswith("taken ") for answer in answers):  # of the old formats Kafka finds no first offset
            assert answers[0] == answers[1], f"{self.kind} {self.number}"

    def clean(self) -> None:
        rng = self.rng
        self.now_ms += rng.choice([1, 900, DELETE_RETENTION_MS + 1, 3 * DELETE_RETENTION_MS])
        for side in self.sides:
            side.ask("time", self.now_ms)
            side.ask("flush")
        told = Told.of(self.ask("watermark", self.batches.next_offset))
        end = max(rng.choice(told.bases[-2:]), self.dirty)
        if end <= self.dirty:
            return
        self.stamp(told)
        keys, buffer = rng.choice([4, 8, 500]), rng.choice([128, 700, 5000])
        answer = self.ask("clean", self.dirty, end, 24 * keys, buffer)
        assert answer.startswith("cleaned "), answer
        self.dirty = int(answer.split()[1])
        self.seen["full"] += self.dirty < end
        self.seen["went"] += answer.split()[5] != answer.split()[6]
        self.compare(Told.of(answer))

    def stamp(self, told: Told) -> None:
        """Give the segments that were appended to since the last cleaning the time of now: by the times of the files
        the tombstones of the old formats go.
        """
        for path in (path for folder in self.folders for path in folder.glob("*.log")):
            if int(path.stem) >= self.active:
                os.utime(path, ns=(self.now_ms * 1_000_000,) * 2)
        self.active = told.bases[-1]

    def compare(self, told: Told) -> None:
        theirs, ours = (comparable(folder, has_codecs=self.has_codecs) for folder in self.folders)
        active = f"{told.bases[-1]:020d}"
        for name in (theirs | ours).keys() - {EPOCHS}:  # an empty one is written, or is not; the state has its entries
            if not name.startswith(active) or name.endswith(".log"):
                assert theirs.get(name) == ours.get(name), f"{self.kind} {self.number} {name}"
                self.seen[pathlib.Path(name).suffix] += 1


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_cleaning_is_kafkas(kind: str, theirs: LineProcess, tmp_path: pathlib.Path) -> None:
    """If this fails, a broker that takes our folder over, or a replica of another make, has other records than ours."""
    seen: Counter[str] = Counter()
    for number in range(LIVES):
        life = Life(number, kind, theirs, tmp_path)
        with contextlib.suppress(_CannotBeEmptyError):
            life.live()
        for side in life.sides:
            if not side.ask("state").endswith("| closed"):
                side.ask("drop")
        seen += life.seen
    print(dict(seen))
    assert seen["went"] > LIVES
    assert seen["full"] > LIVES // 4
    assert "legacy" in kind or seen[".txnindex"] > LIVES


def sent(offset: int, key: bytes, value: bytes | None, *, sequence: int | None = None) -> tuple[str, str, int]:
    """A batch of one record for a follower: of a transaction of producer 1, if it has a sequence."""
    producer = {} if sequence is None else {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence}
    builder = RecordBatchBuilder(offset, leader_epoch=0, transactional=bool(producer), **producer)
    builder.append(key, value, timestamp_ms=START_MS)
    return "follower", builder.build().hex(), 0


def ended(offset: int, kind: ControlRecordType) -> tuple[str, str, int]:
    producer = {"producer_id": 1, "producer_epoch": 0, "coordinator_epoch": 0}
    return (
        "follower",
        build_end_transaction_marker(offset, kind, timestamp_ms=START_MS, leader_epoch=0, **producer).hex(),
        0,
    )


#: An aborted transaction ends in front of the dirty part; the producer's next one deletes a key.
DELETED = [
    sent(0, b"deleted", b"value"),
    sent(1, b"other", b"aborted", sequence=0),
    ended(2, ControlRecordType.ABORT),
    sent(3, b"deleted", None, sequence=1),
    ended(4, ControlRecordType.COMMIT),
    ("roll",),
    sent(5, b"last", b""),
    ("watermark", 6),
    ("clean", 3, 5, 2400, 5000),
    ("time", START_MS + DELETE_RETENTION_MS + 1),
    ("roll",),
    ("clean", 5, 6, 2400, 5000),
]
#: It ends in front of the log start.
STARTED = [
    sent(0, b"aborted", b"value", sequence=0),
    ended(1, ControlRecordType.ABORT),
    sent(2, b"other", b""),
    sent(3, b"last", b""),
    ("watermark", 4),
    ("start", 3),
    ("roll",),
    ("clean", 3, 4, 2400, 5000),
]


@pytest.mark.parametrize(
    ("commands", "only_kafkas"),
    [(DELETED, [b"deleted"]), (STARTED, [b"aborted"])],
    ids=["in front of the dirty part", "in front of the log start"],
)
def test_an_aborted_transaction_that_has_ended(
    theirs: LineProcess, tmp_path: pathlib.Path, commands: list[tuple[object, ...]], only_kafkas: list[bytes]
) -> None:
    """The value of a deleted key comes back, when its tombstone has gone; an aborted record counts as committed."""
    left: list[list[bytes]] = []
    for name, side, collects in (("theirs", theirs, False), ("ours", OurLog(), False), ("as theirs", OurLog(), True)):
        folder = tmp_path / name.replace(" ", "-") / "orders-0"
        folder.mkdir(parents=True)
        side.ask("time", START_MS)
        config = f"cleanup.policy=compact;delete.retention.ms={DELETE_RETENTION_MS};index.interval.bytes=1"
        side.ask("open", folder, config, 0, 0, 0, 0, "-", 0, 0)
        with rows.collecting_ended() if collects else contextlib.nullcontext():
            for command in commands:
                side.ask(*command)
        side.ask("drop")
        data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        left.append([row["key"] for row in decode(data, columns=("key",)).to_pylist()])
    assert left[0] == left[2] == [*only_kafkas, *left[1]]
