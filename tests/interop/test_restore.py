"""A real broker that lost its metadata topic gets it back from the bucket, and serves old offsets again."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.command import Outcome, run_process
from tests.support.golden import ISOLATIONS, tiered_offsets, tiered_topics
from tests.support.metadata_topics import TopicRecords, read_topic
from tests.support.pages import commands_of
from tests.support.peers import broker, install, plugin
from tests.support.replica_readers import expected_rows
from tierlog.remote.api import IndexType
from tierlog.remote.metadata.metadata_log import metadata_partition
from tierlog.remote.tier import open_tier

pytestmark = pytest.mark.interop

TOPIC = "orders"
METADATA = "__remote_log_metadata"
RECORDS = 4500
PATIENCE_SECONDS = 120.0
TASK_SECONDS = 0.5
TIERS = ["local-tiered", "plugin"]
#: Topics of the golden bucket, and their last leader epochs.
MADE_ANEW = {"fx-epochs": 5, "fx-txn": 0}


@pytest.fixture(autouse=True)
def _needs_a_broker() -> None:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")


@pytest.fixture(params=TIERS)
def settings(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> dict[str, str]:
    """Of a broker that tiers at once into ``tmp_path/tier``, and keeps no closed segment."""
    (tmp_path / "tier").mkdir()
    if request.param == "plugin":
        if not plugin.jars():
            pytest.skip(plugin.HOW)
        manager, jars = plugin.MANAGER, ":".join(map(str, plugin.jars()))
        keys = {
            "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
            "storage.root": str(tmp_path / "tier"),
            "chunk.size": "65536",
            "compression.enabled": "true",
        }
    else:
        manager = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        jars, keys = install.class_path("kafka-tier"), {"dir": str(tmp_path / "tier")}
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        "remote.log.manager.task.interval.ms": str(round(1000 * TASK_SECONDS)),
        "log.retention.check.interval.ms": "500",
        "remote.log.storage.manager.class.name": manager,
        "remote.log.storage.manager.class.path": jars,
    } | {f"rsm.config.{name}": value for name, value in keys.items()}


def create_topic(bootstrap: str, topic: str = TOPIC) -> None:
    config = {
        "remote.storage.enable": "true",
        "segment.bytes": str(1 << 20),
        "local.retention.ms": "1",
        "retention.ms": "-1",
        "file.delete.delay.ms": "0",
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(60)


def produce(bootstrap: str, first: int, count: int, topic: str = TOPIC) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 50})
    for number in range(first, first + count):
        producer.produce(topic, key=str(number).encode(), value=f"{number:08d}".encode() * 100)
        producer.poll(0)
    assert producer.flush(60) == 0


def consume(
    bootstrap: str, count: int, topic: str = TOPIC, isolation: str = "read_committed"
) -> list[tuple[int, bytes]]:
    """Records from offset 0 on; nobody resets to where the broker has some."""
    options = {"group.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "isolation.level": isolation, **options})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    errors: list[str] = []
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records came; {errors[-3:]}"
            for message in consumer.consume(min(1000, count - len(found)), timeout=5):
                error = message.error()
                if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise AssertionError(f"offset 0 is gone: {error}")
                if error is not None:  # a broker that has just started has not read its metadata yet
                    assert error.code() == KafkaError.UNKNOWN, error
                    errors.append(str(error))
                    continue
                found.append((message.offset(), message.value()))
    finally:
        consumer.close()
    return found


def until_tiered(folder: pathlib.Path) -> int:
    """Wait until the active segment alone is left on the disk; its base offset."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        left = sorted(int(path.name.split(".")[0]) for path in (folder / f"{TOPIC}-0").glob("*.log*"))
        if len(left) == 1 and left[0] > 0:
            return left[0]
        assert time.monotonic() < deadline, f"closed segments are still on the disk: {left}"
        time.sleep(0.5)


def topic_id_of(folder: pathlib.Path) -> str:
    found = re.search(r"topic_id: (\S+)", (folder / "partition.metadata").read_text())
    assert found is not None
    return found[1]


@contextlib.contextmanager
def running(folder: pathlib.Path, settings: dict[str, str]) -> Iterator[broker.Broker]:
    with broker.running(folder, heap="512m", extra=settings) as started:
        yield started


def restored(tmp_path: pathlib.Path, *options: object) -> Outcome:
    outcome = run_process("restore", tmp_path / "tier", "--quiet-minutes", "0", *options)
    assert outcome.code == 0, outcome.err
    return outcome


def test_a_lost_metadata_topic_comes_back(tmp_path: pathlib.Path, settings: dict[str, str]) -> None:
    """Otherwise all that was tiered is lost with the fifty small partitions that say where it is."""
    logs = tmp_path / "broker" / "logs"
    with running(tmp_path / "broker", settings) as started:
        create_topic(started.bootstrap)
        produce(started.bootstrap, 0, RECORDS)
        before = consume(started.bootstrap, RECORDS)
        local_start = until_tiered(logs)
    assert 0 < local_start <= RECORDS

    topic_id = topic_id_of(logs / f"{METADATA}-0")
    for number in range(2):
        shutil.rmtree(logs / f"{METADATA}-{number}")
    restored(tmp_path, "--to", f"{tmp_path}/restored/", "--partitions", 2, "--topic-id", topic_id)
    for number in range(2):
        shutil.move(tmp_path / "restored" / f"{METADATA}-{number}", logs)

    with running(tmp_path / "broker", settings) as started:
        assert consume(started.bootstrap, RECORDS) == before
        produce(started.bootstrap, RECORDS, RECORDS)  # and the cluster goes on with them
        after = consume(started.bootstrap, 2 * RECORDS)
        assert [offset for offset, _ in after] == list(range(2 * RECORDS))
        assert after[:RECORDS] == before
        assert until_tiered(logs) > local_start
        again = run_process("restore", tmp_path / "tier", "--to", started.bootstrap, "--quiet-minutes", "0")
        assert again.code == 0, again.err  # it knows them all already


def test_topics_that_were_made_anew_keep_their_segments(
    tmp_path: pathlib.Path, data: pathlib.Path, settings: dict[str, str]
) -> None:
    """The cluster is gone with its disks: in another order than the page's the new leaders delete what was restored."""
    cases = [case for case in tiered_topics(data) if case.run.name == "main-plain" and case.topic in MADE_ANEW]
    tier, logs = tmp_path / "tier", tmp_path / "new" / "logs"
    is_plugin = "rsm.config.dir" not in settings
    if is_plugin:
        shutil.copytree(cases[0].objects, tier, dirs_exist_ok=True)
    else:
        write_local_tiered(cases[0].objects, tier / "kafka-tiered-storage", [case.topic for case in cases])
    old = dict(topic_ids(tier))
    with running(tmp_path / "new", settings) as started:
        for case in cases:
            create_topic(started.bootstrap, case.topic)
        eventually(lambda: all(folder.exists() for folder in empty_folders(logs)), "the topics' folders")
        new = {case.topic: topic_id_of(logs / f"{case.topic}-0") for case in cases}
        maps = [word for topic, name in new.items() for word in ("--map", f"{old[topic]}={name}")]
        before = objects_of(tier)
        refused = run_process("restore", tier, *maps, "--quiet-minutes", "0", "--to", started.bootstrap)
        assert refused.code == 2
        assert all(f"{topic}-0 (its log there is empty)" in refused.err for topic in new)
        assert "`tierlog restore --to FOLDER/`" in refused.err
        assert records_in(started.bootstrap, 2) == []
    assert objects_of(tier) == before
    found = re.findall(r"^(\S+)-0 id .* last leader epoch (\d+)$", restored(tmp_path, *maps).text, re.MULTILINE)
    needed = {topic: int(epoch) for topic, epoch in found if topic in new}
    assert needed == MADE_ANEW
    raise_epochs(tmp_path / "new", settings, needed)

    (tmp_path / "broker.properties").write_text("compression.enabled=true\nchunk.size=65536\n")
    copy, export, restore = commands_of("docs/disaster-recovery.md", "4. Topics under a new id")[1:]
    if is_plugin:
        run_of_page(tmp_path, copy, maps)
    else:
        for topic, topic_id in new.items():
            (folder,) = tier.rglob(f"{topic}-0-{old[topic]}")
            folder.rename(folder.with_name(f"{topic}-0-{topic_id}"))
    for topic, topic_id in new.items():
        noted = run_of_page(tmp_path, export, maps, f"{topic_id}:{topic}").err
        assert needed[topic] == 0 or f"{topic}-0: needs a leader of epoch {needed[topic]}" in noted
    metadata_id = topic_id_of(logs / f"{METADATA}-1")
    run_of_page(tmp_path, restore, maps if is_plugin else [], metadata_id)
    for source in (*(tmp_path / "restored").glob(f"{METADATA}-*"), *(tmp_path / "export").glob("*-0")):
        shutil.rmtree(logs / source.name)
        shutil.move(source, logs)

    before = objects_of(tier)
    with running(tmp_path / "new", settings) as started:
        for case in cases:
            for isolation in ISOLATIONS:
                expected = expected_rows(case, isolation)
                assert expected
                found = consume(started.bootstrap, len(expected), case.topic, isolation)
                assert [(each[1], each[4]) for each in expected] == found
        time.sleep(10 * TASK_SECONDS)  # expiration has run some times
        assert objects_of(tier) >= before
        (_, end) = tiered_offsets(cases[0])[0]
        produce(started.bootstrap, 0, 100, cases[0].topic)
        assert len(consume(started.bootstrap, end + 101, cases[0].topic)) == end + 101


def write_local_tiered(bucket: pathlib.Path, folder: pathlib.Path, topics: Sequence[str]) -> None:
    """The segments of a bucket as Kafka's LocalTieredStorage has them."""
    suffixes = {
        IndexType.OFFSET: "index",
        IndexType.TIMESTAMP: "timeindex",
        IndexType.TRANSACTION: "txnindex",
        IndexType.PRODUCER_SNAPSHOT: "snapshot",
        IndexType.LEADER_EPOCH: "leader_epoch_checkpoint",
    }
    with open_tier(str(bucket)) as tier:
        for segment in tier.iter_segments(topic_pattern="|".join(topics)):
            at = segment.topic_id_partition
            place = folder / f"{at.topic}-{at.partition}-{at.topic_id}"
            place.mkdir(parents=True, exist_ok=True)
            stem = f"{segment.start_offset:020d}-{segment.metadata.remote_log_segment_id.id}"
            (place / f"{stem}.log").write_bytes(b"".join(window for _, window in tier.iter_log_windows(segment)))
            for kind, suffix in suffixes.items():
                content = tier.fetch_index(segment, kind)
                if content is not None:
                    (place / f"{stem}.{suffix}").write_bytes(content)


def topic_ids(tier: pathlib.Path) -> Iterator[tuple[str, str]]:
    for line in run_process("ls", tier, "--topics", "--output", "json").lines:
        yield str(line["topic"]), str(line["topicId"])


def objects_of(tier: pathlib.Path) -> set[pathlib.Path]:
    return {path for path in tier.rglob("*") if path.is_file()}


def empty_folders(logs: pathlib.Path) -> list[pathlib.Path]:
    return [logs / name / "partition.metadata" for name in (*(f"{each}-0" for each in MADE_ANEW), f"{METADATA}-1")]


def raise_epochs(folder: pathlib.Path, settings: dict[str, str], needed: Mapping[str, int]) -> None:
    """Restart the broker until the empty topics have these leader epochs."""

    def missing() -> int:
        found = [folder / "logs" / f"{topic}-0" / "leader-epoch-checkpoint" for topic in needed]
        epochs = [int(path.read_text().splitlines()[-1].split()[0]) for path in found]
        return sum(max(0, wanted - epoch) for epoch, wanted in zip(epochs, needed.values(), strict=True))

    while left := missing():
        with running(folder, settings):
            eventually(lambda last=left: missing() < last, "later leader epochs")  # type: ignore[misc]


def run_of_page(tmp_path: pathlib.Path, words: Sequence[str], maps: Sequence[str], given: str = "") -> Outcome:
    """A command of the page's part 4, with what it names here: our maps for its one, and an id or ID:TOPIC."""
    places = {"s3://tier": tmp_path / "tier", "/export": tmp_path / "export", "/restored/": f"{tmp_path}/restored/"}
    arguments: list[object] = []
    for before, word in itertools.pairwise(["", *words]):
        if word == "--map":
            arguments += maps
        elif before == "--topic-id" or word.endswith(":orders"):
            arguments.append(given)
        elif before == "--partitions":
            arguments.append(2)
        elif word == "broker.properties":
            arguments.append(tmp_path / word)
        elif before != "--map":
            arguments.append(places.get(word, word))
    outcome = run_process(*arguments)
    assert outcome.code == 0, outcome.err
    return outcome


def eventually(answer: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not answer():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.2)


def test_records_go_into_a_running_kafka(tmp_path: pathlib.Path, data: pathlib.Path, settings: dict[str, str]) -> None:
    """Both records of each segment, without key, in the partition in which brokers look; a second run adds none."""
    if "rsm.config.dir" not in settings:
        pytest.skip("whose tier the broker has makes no difference")
    bucket = data / "main-plain" / "objects"
    with running(tmp_path / "broker", settings) as started:
        eventually_there(started.bootstrap)
        for told in (f"written to {started.bootstrap}", f"nothing was written: {started.bootstrap} knows them all"):
            outcome = run_process("restore", bucket, "--to", started.bootstrap, "--quiet-minutes", "0")
            assert outcome.code == 0, outcome.err
            assert outcome.text.splitlines()[-1].endswith(f": {told}")
            found = records_in(started.bootstrap, 2)
            topic = TopicRecords()
            for place, key, value in found:
                assert key is None
                topic.add(place, value)
            assert len(found) == 2 * len(topic.finished) == 2 * len(list(bucket.rglob("*.rsm-manifest")))
            for partition, places in topic.places.items():
                assert places == {metadata_partition(partition, 2)}
        elsewhere = tmp_path / "folder"
        restored_there = run_process("restore", bucket, "--to", f"{elsewhere}/", "--quiet-minutes", "0")
        assert restored_there.code == 0
        assert topic.segments == read_topic([elsewhere]).segments


def eventually_there(bootstrap: str) -> None:
    """Until the broker has made its metadata topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    eventually(lambda: METADATA in admin.list_topics(timeout=10).topics, METADATA)


def records_in(bootstrap: str, partitions: int) -> list[tuple[int, bytes | None, bytes]]:
    """(partition, key, value) of every record of the metadata topic, in order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: list[tuple[int, bytes | None, bytes]] = []
    try:
        for partition in range(partitions):
            _, end = consumer.get_watermark_offsets(TopicPartition(METADATA, partition), timeout=30)
            consumer.assign([TopicPartition(METADATA, partition, 0)])
            last = -1
            while last < end - 1:
                (message,) = consumer.consume(1, timeout=30)
                assert message.error() is None
                found.append((partition, message.key(), message.value()))
                last = message.offset()
    finally:
        consumer.close()
    return found
