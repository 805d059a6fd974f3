"""The jar's reader beside the Python path: the same rows, errors and warnings from the same plans."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.conftest import DATA
from tests.support.bad_objects import DAMAGED, bucket_of
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.golden import config_of, log_folders, tiered_topics
from tests.support.task_reader import Answer, Store, TaskReaderProcess, plan_of, rows_as_text
from tierlog import open_tier
from tierlog.errors import TierlogError
from tierlog.remote.tier import Tier
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.read import COLUMNS, ScanCounters, read_scan_range
from tierlog.scan.scan_range import ScanRange
from tierlog.scan.scan_request import IsolationLevel, RecordFilter, ScanRequest, TopicSelection

ALL = COLUMNS


def store_of(root: pathlib.Path, config: dict[str, str] | None = None) -> Store:
    prefix, suffix = "encryption.key.pairs.", ".private.key.file"
    keys = {
        name.removeprefix("rsm.config.").removeprefix(prefix).removesuffix(suffix): path
        for name, path in (config or {}).items()
        if name.endswith(suffix)
    }
    return Store(str(root.resolve()), keys=tuple(keys.items()))


def by_python(
    tier: Tier, ranges: Sequence[ScanRange], columns: Sequence[str] = ALL
) -> tuple[list[str], TierlogError | None, ScanCounters]:
    counters = ScanCounters()
    rows: list[str] = []
    try:
        for each in ranges:
            rows += rows_as_text(read_scan_range(tier, each, columns=columns, timestamp_unit="us", counters=counters))
    except TierlogError as error:
        return rows, error, counters
    return rows, None, counters


def assert_equal(answer: Answer, python: tuple[list[str], TierlogError | None, ScanCounters]) -> None:
    rows, error, counters = python
    assert answer.error == (None if error is None else (type(error).__name__, str(error)))
    if error is None:
        assert answer.rows == rows
        assert answer.told["warnings"] == counters.warnings
        assert answer.told["records"] == counters.records == len(rows)
        assert (answer.told["batches"], answer.told["batchesSkipped"]) == (counters.batches, counters.batches_skipped)
        assert answer.told["decompressedBytes"] == counters.decompressed_bytes
    assert (answer.told["nativeBytes"], answer.told["files"], answer.told["readers"]) == (0, 0, 0)


def read_both(
    jvm: TaskReaderProcess, root: pathlib.Path, config: dict[str, str], request: ScanRequest, **settings: Any
) -> int:
    """The number of rows."""
    with open_tier(str(root), config=config) as tier:
        ranges = plan_scan(tier, request).ranges
        python = by_python(tier, ranges)
    assert_equal(jvm.read(ranges, store_of(root, config), ALL, **settings), python)
    return len(python[0])


def topic_request(topic: str, **options: Any) -> ScanRequest:
    return ScanRequest(TopicSelection.of_names([topic]), **options)


@pytest.mark.few(1)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_every_tiered_topic(jvm: TaskReaderProcess, data: pathlib.Path, isolation: IsolationLevel) -> None:
    """A job would change its answer on the day that the jar is added."""
    found = 0
    for case in tiered_topics(data):
        request = topic_request(case.topic, isolation_level=isolation)
        found += read_both(jvm, case.objects, config_of(case.run), request)
    assert found > 1000


def test_every_golden_topic(jvm: TaskReaderProcess, fixtures: pathlib.Path) -> None:
    """The same on all that real systems wrote: transforms, custom metadata, compaction, several epochs."""
    found = 0
    for case in tiered_topics(fixtures):
        found += read_both(jvm, case.objects, config_of(case.run), topic_request(case.topic, fail_on_data_loss=False))
    for folder, topic in log_folders(fixtures):
        found += read_both(jvm, folder, {}, topic_request(topic, isolation_level="read_committed"))
    assert found > 90_000


def test_old_formats(jvm: TaskReaderProcess, data: pathlib.Path) -> None:
    """Logs from before Kafka 0.11 would be read with other offsets, timestamps or not at all."""
    logs = sorted((data / "record-v0-v1").glob("*.log"))
    assert logs
    for log in logs:
        with open_tier(str(log)) as tier:
            request = ScanRequest(TopicSelection.matching(".*"))
            ranges = plan_scan(tier, request).ranges
            root = pathlib.Path(tier.store.describe())
            assert_equal(jvm.read(ranges, store_of(root), ALL), by_python(tier, ranges))


@pytest.mark.few(40)
@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("name", DAMAGED)
def test_damage(jvm: TaskReaderProcess, tmp_path: pathlib.Path, name: str, fail: bool) -> None:
    """An error that names other places than the documentation's, or a damaged batch that takes the JVM down."""
    topic = bucket_of(name, tmp_path)
    config = damage_config()
    try:
        with open_tier(str(tmp_path), config=config) as tier:
            ranges = plan_scan(tier, topic_request(topic, fail_on_data_loss=fail)).ranges
            python = by_python(tier, ranges)
    except TierlogError:
        return  # the planner refuses it, for both paths
    assert_equal(jvm.read(ranges, store_of(tmp_path, config), ALL), python)


def damage_config() -> dict[str, str]:
    ids = [folder.name for folder in sorted((DATA / "keys").iterdir()) if folder.is_dir()]
    files = {f"encryption.key.pairs.{i}.private.key.file": str(DATA / "keys" / i / "private.der") for i in ids}
    return {"encryption.key.pairs": ",".join(ids)} | files


@pytest.mark.parametrize(("window", "batch"), [(1, 1), (100, 1 << 12), (4096, 1 << 16), (1 << 16, 1 << 10)])
def test_any_cut_gives_the_same_rows(jvm: TaskReaderProcess, data: pathlib.Path, window: int, batch: int) -> None:
    """Rows would be lost or doubled where a batch lies across two windows, or where a columnar batch is full."""
    for case in tiered_topics(data):
        with open_tier(str(case.objects), config=config_of(case.run)) as tier:
            ranges = plan_scan(tier, topic_request(case.topic)).ranges[:2]
            rows, error, _ = by_python(tier, ranges)
        wide = max(window, ranges[0].size_bytes // 500) if window == 1 else window
        store = store_of(case.objects, config_of(case.run))
        answer = jvm.read(ranges, store, ALL, windowBytes=wide, batchBytes=batch)
        assert (answer.error, error) == (None, None)
        assert answer.rows == rows


@pytest.mark.parametrize(
    "columns",
    [
        (),
        ("topic",),
        ("partition", "segment"),
        ("offset",),
        ("value", "key"),
        ("headers", "topic"),
        ("timestamp", "offset"),
    ],
)
def test_pruned_columns(jvm: TaskReaderProcess, data: pathlib.Path, columns: tuple[str, ...]) -> None:
    """A query of some columns would get those of others, or another count."""
    case = next(case for case in tiered_topics(data) if case.run.name == "main-plain")
    with open_tier(str(case.objects)) as tier:
        ranges = plan_scan(tier, topic_request(case.topic)).ranges
        rows, _, counters = by_python(tier, ranges, columns)
    answer = jvm.read(ranges, store_of(case.objects), columns)
    assert answer.told["records"] == counters.records == len(answer.rows)
    assert answer.rows == (rows or [""] * counters.records)


def test_bounds_of_records(jvm: TaskReaderProcess, tmp_path: pathlib.Path) -> None:
    """Filters that were pushed down would let rows through that Spark does not look at again."""
    bucket = Bucket(tmp_path)
    bucket.segment("u1", [ten(number) for number in range(10)], lineage={0: 0})
    chosen = RecordFilter(
        first_offset=15, end_offset_exclusive=48, first_timestamp_ms=20_003, end_timestamp_exclusive_ms=40_005
    )
    assert read_both(jvm, tmp_path, {}, topic_request("orders", record_filter=chosen)) == 22


def ten(number: int) -> Batch:
    values = tuple(b"%d" % offset for offset in range(10 * number, 10 * number + 10))
    return Batch(10 * number, values, timestamp_ms=10_000 * number)


def planned(root: pathlib.Path, **options: Any) -> tuple[ScanRange, ...]:
    """One segment of ten batches of ten records."""
    Bucket(root).segment("u1", [ten(number) for number in range(10)], lineage={0: 0})
    with open_tier(str(root)) as tier:
        return plan_scan(tier, topic_request("orders", **options)).ranges


@pytest.mark.parametrize("fail", [True, False])
def test_an_object_that_is_gone(jvm: TaskReaderProcess, tmp_path: pathlib.Path, fail: bool) -> None:
    """Retention deletes segments while a job runs: it must end with their names, or go on with a warning."""
    ranges = planned(tmp_path, fail_on_data_loss=fail)
    (log,) = tmp_path.rglob("*.log")
    log.unlink()
    answer = jvm.read(ranges, store_of(tmp_path), ALL)
    with open_tier(str(tmp_path)) as tier:
        assert_equal(answer, by_python(tier, ranges))
    assert "gone since it was listed" in (answer.error[1] if answer.error else answer.told["warnings"][0])


@pytest.mark.parametrize("fail", [True, False])
def test_an_object_that_ends_early(jvm: TaskReaderProcess, tmp_path: pathlib.Path, fail: bool) -> None:
    """A half-written object would be taken for a short one."""
    ranges = planned(tmp_path, fail_on_data_loss=fail)
    (log,) = tmp_path.rglob("*.log")
    log.write_bytes(log.read_bytes()[:-7])
    with open_tier(str(tmp_path)) as tier:
        assert_equal(jvm.read(ranges, store_of(tmp_path), ALL), by_python(tier, ranges))


def test_a_batch_that_is_damaged_in_each_byte(jvm: TaskReaderProcess, tmp_path: pathlib.Path) -> None:
    """Some byte of a header would be trusted: another error than Python's, other rows, or the end of the JVM."""
    ranges = planned(tmp_path, fail_on_data_loss=False)
    (log,) = tmp_path.rglob("*.log")
    sound = log.read_bytes()
    size = len(sound) // 10
    for at in range(3 * size, 4 * size, 3):
        log.write_bytes(sound[:at] + bytes([sound[at] ^ 0x41]) + sound[at + 1 :])
        with open_tier(str(tmp_path)) as tier:
            assert_equal(jvm.read(ranges, store_of(tmp_path), ALL), by_python(tier, ranges))


def test_the_ceiling_of_native_memory(jvm: TaskReaderProcess, tmp_path: pathlib.Path) -> None:
    """A task above its share would get the executor killed by its cluster, which names no reason."""
    big = Batch(0, (b"v" * (3 << 20),), timestamp_ms=1)
    Bucket(tmp_path).segment("u1", [big], lineage={0: 0})
    with open_tier(str(tmp_path)) as tier:
        ranges = plan_scan(tier, topic_request("orders")).ranges
    answer = jvm.read(ranges, store_of(tmp_path), ALL, offHeapBytesPerTask=4 << 20)
    assert answer.error is not None
    assert answer.error[0] == "ConfigError"
    assert "offHeapBytesPerTask is 4194304" in answer.error[1]
    assert (answer.told["nativeBytes"], answer.told["files"]) == (0, 0)
    roomy = jvm.read(ranges, store_of(tmp_path), ALL, offHeapBytesPerTask=16 << 20)
    assert (roomy.error, len(roomy.rows)) == (None, 1)
    assert roomy.told["nativeBytesHigh"] <= 16 << 20


def test_any_ceiling_is_kept(jvm: TaskReaderProcess, data: pathlib.Path) -> None:
    """Either the rows, in no more memory than the option allows, or an error that names it and leaves nothing."""
    outcomes = {True: 0, False: 0}
    for case in tiered_topics(data):
        with open_tier(str(case.objects), config=config_of(case.run)) as tier:
            ranges = plan_scan(tier, topic_request(case.topic)).ranges
            rows, _, _ = by_python(tier, ranges)
        for limit in (1, 1 << 12, 1 << 16, 1 << 18, 1 << 20, 3 << 20, 1 << 26):
            answer = jvm.read(ranges, store_of(case.objects, config_of(case.run)), ALL, offHeapBytesPerTask=limit)
            outcomes[answer.error is None] += 1
            assert answer.told["nativeBytesHigh"] <= limit
            assert [answer.told[name] for name in ("nativeBytes", "files", "readers")] == [0, 0, 0]
            if answer.error is None:
                assert answer.rows == rows
            else:
                assert answer.error[0] == "ConfigError"
                assert f"offHeapBytesPerTask is {limit}: raise it" in answer.error[1]
    assert min(outcomes.values()) > 10


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory of a process")
def test_the_process_grows_by_no_more_than_the_ceiling(jvm: TaskReaderProcess, tmp_path: pathlib.Path) -> None:
    """Counters that count something else than the kernel does would size executors wrongly."""
    batches = [Batch(offset, (b"v" * (1 << 20),)) for offset in range(8)]
    Bucket(tmp_path).segment("u1", batches, lineage={0: 0})
    with open_tier(str(tmp_path)) as tier:
        ranges = plan_scan(tier, topic_request("orders")).ranges * 16
    request = plan_of(ranges, store_of(tmp_path)) | {"columns": ALL, "verifyChecksums": True}
    request["offHeapBytesPerTask"] = ceiling = 16 << 20
    jvm.ask(request)
    pathlib.Path(f"/proc/{jvm.pid}/clear_refs").write_text("5")  # the high-water mark begins anew
    before = memory_of(jvm.pid)["VmRSS"]
    told = jvm.ask(request)
    assert told["records"] == 128
    assert 3 << 20 < told["nativeBytesHigh"] <= ceiling
    # What Java's heap takes meanwhile is no more than half of it.
    assert memory_of(jvm.pid)["VmHWM"] - before <= ceiling * 3 // 2


def memory_of(pid: int) -> dict[str, int]:
    """VmRSS, VmHWM and the like, in bytes."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.partition(":")[0]: int(line.split()[1]) << 10 for line in lines if line.endswith(" kB")}


def test_nulls_where_the_schema_has_none(jvm: TaskReaderProcess, tmp_path: pathlib.Path) -> None:
    """Spark would read whatever lies under a null that it was told is not there."""
    answer = jvm.read(planned(tmp_path), store_of(tmp_path), ("key", "value"), notNull=["key"])
    text = "column key is NOT NULL in the given schema, and holds nulls"
    assert answer.error == ("ConfigError", text)
    assert jvm.read(planned(tmp_path), store_of(tmp_path), ("key", "value"), notNull=["value"]).error is None


def test_a_reader_that_is_closed_early(jvm: TaskReaderProcess, data: pathlib.Path) -> None:
    """A limit or a killed task would leave memory and files behind in the executor, task after task."""
    case = next(iter(tiered_topics(data)))
    with open_tier(str(case.objects), config=config_of(case.run)) as tier:
        ranges = plan_scan(tier, topic_request(case.topic)).ranges
    for stop_after in (0, 1):
        answer = jvm.read(ranges, store_of(case.objects, config_of(case.run)), ALL, stopAfter=stop_after)
        assert (answer.told["nativeBytes"], answer.told["files"], answer.told["objectReads"]) == (0, 0, 0)


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes"])
def test_two_hundred_killed_tasks(jvm: TaskReaderProcess, data: pathlib.Path, run: str) -> None:
    """Speculative execution and cancelled queries would fill an executor's memory, which no heap dump shows."""
    case = next(case for case in tiered_topics(data) if case.run.name == run)
    with open_tier(str(case.objects), config=config_of(case.run)) as tier:
        ranges = plan_scan(tier, topic_request(case.topic)).ranges
    request = plan_of(ranges, store_of(case.objects, config_of(case.run)))
    request |= {"columns": ALL, "verifyChecksums": True, "kills": 200, "seed": 7, "batchBytes": 1 << 14}
    told = jvm.ask(request)
    assert (told["ended"], told["surprises"]) == (200, [])
    assert [told[name] for name in ("nativeBytes", "files", "objectReads", "readers")] == [0, 0, 0, 0]


@pytest.mark.parametrize("wrong", ["missing", "other", "none", "rubbish"])
def test_keys_that_do_not_fit(jvm: TaskReaderProcess, data: pathlib.Path, tmp_path: pathlib.Path, wrong: str) -> None:
    """A wrong key would look like damaged data, or like a fault of Java's."""
    case = next(case for case in tiered_topics(data) if case.run.name == "zstd-aes")
    with open_tier(str(case.objects), config=config_of(case.run)) as tier:
        ranges = plan_scan(tier, topic_request(case.topic)).ranges[:1]
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    file = tmp_path / "key"
    file.write_bytes(other if wrong == "other" else b"rubbish")
    key_id = "k9" if wrong == "missing" else "k1"
    keys = {"missing": store_of(case.objects, config_of(case.run)).keys[0][1], "none": str(tmp_path / "none")}
    path = keys.get(wrong, str(file))
    config = {"encryption.key.pairs": key_id, f"encryption.key.pairs.{key_id}.private.key.file": path}
    answer = jvm.read(ranges, store_of(case.objects, config), ALL)
    with pytest.raises(TierlogError) as python, open_tier(str(case.objects), config=config, layout="aiven") as tier:
        list(read_scan_range(tier, ranges[0]))
    assert answer.error == (type(python.value).__name__, str(python.value))


@pytest.mark.more
def test_chunks_are_decrypted_by_either_cipher(
    jvm: TaskReaderProcess, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A jar without the store library decrypts in Java: it must read the same, and refuse the same in its words."""
    cases = [case for case in tiered_topics(data) if case.run.name in ("aes", "zstd-aes")]
    assert {case.run.name for case in cases} >= {"zstd-aes"}
    names = [name for name in DAMAGED if "aes" in name]
    assert names
    found: dict[bool, list[Any]] = {}
    for by_java in (False, True):
        # A JVM that has once left it to Java does so for good.
        with TaskReaderProcess(tmp_path / "jvm") if by_java else contextlib.nullcontext(jvm) as reader:
            found[by_java] = []
            for case in cases:
                with open_tier(str(case.objects), config=config_of(case.run)) as tier:
                    ranges = plan_scan(tier, topic_request(case.topic)).ranges
                answer = reader.read(ranges, store_of(case.objects, config_of(case.run)), ALL, javaCipher=by_java)
                assert answer.error is None
                found[by_java].append(answer.rows)
            for name in names:
                root = tmp_path / f"{name}-{by_java}"
                topic = bucket_of(name, root)
                try:
                    with open_tier(str(root), config=damage_config()) as tier:
                        ranges = plan_scan(tier, topic_request(topic)).ranges
                except TierlogError:
                    continue  # the planner refuses it
                answer = reader.read(ranges, store_of(root, damage_config()), ALL, javaCipher=by_java)
                found[by_java].append((answer.rows, answer.error))
    assert found[True] == found[False]
    assert any("NOT_AUTHENTIC" in str(answer) or "not authentic" in str(answer) for answer in found[False])
