"""Spark's streams over a topic whose history lies in the tier, by Kafka's source and by ours.

    TIERLOG_PLUGIN_JARS=FOLDER python -m bench.spark_streams [--scale 0.1] [--rounds 5] [--forms plain,zstd+AES]

    queries: all that there is, once; by Spark
    triggers: the planner's CPU of triggers that find nothing new, and what they list in an S3 server

The broker, the topic and the tier are those of ``bench.spark``; then a twentieth as much is produced that stays on the
broker's disk. A query is ``Trigger.AvailableNow`` from the first offset into a noop sink, with a checkpoint of its own.
The tier alone is read by both our engines; all of the topic by the Kafka source and by ``mode=remote-preferred``. As
many rows come from both, and what the tier alone lacks is what was produced last. CPU seconds are of Spark's processes;
the broker's are a row of their own.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bench.harness import Round, Rounds, Suite, arguments, cpu_seconds, equal, spread, work_folder
from bench.spark import CACHE_BYTES, HEAP, KAFKA, run_application
from bench.stream_application import SOURCES
from bench.topics import GIGABYTES, broker_settings, fill, fill_tier, our_options
from tests.support.batches import message
from tests.support.fault_proxy import FaultProxy
from tests.support.metadata_cluster import manager_config
from tests.support.peers import broker, install, plugin
from tests.support.planner import PlannerChild
from tests.support.segments import make_segment
from tests.support.servers import seaweed
from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.topic_backed.kafka_metadata_log import KafkaMetadataLogs
from tierlog.scan.following.tier_listing import WHOLE_LISTING_EACH

PARTS = ("queries", "triggers")
OURS = {
    "tierlog-jar": "the tier alone, columnar reader",
    "tierlog-python": "the tier alone, Python path",
    "tierlog-preferred": "tier, then broker, columnar reader",
}
#: By form, against the Kafka source.
BARS = {"plain": {"tierlog-jar": 10.0, "tierlog-preferred": 3.5}, "zstd + AES": {"tierlog-jar": 4.0}}
#: Most CPU of the broker, as a part of what the Kafka source makes it use.
BROKER_BAR = 0.15
#: Of the topic, what only the broker has.
LOCAL_PART = 0.05


def measure(suite: Suite, folder: pathlib.Path, form: str, chosen: Any) -> None:
    root = folder / "bucket"
    root.mkdir(parents=True)
    cache = max(64 << 20, int(CACHE_BYTES * chosen.scale))
    topic = f"streams-{form.replace(' + ', '-')}"
    with broker.running(folder / "broker", heap=HEAP, extra=broker_settings(form, root, folder, cache)) as running:
        tiered = sum(fill_tier(running, topic, chosen.codec, chosen.scale).values())
        fill(running, topic, chosen.codec, int(GIGABYTES * 1e9 * chosen.scale * LOCAL_PART))
        words = ["--path", str(root), "--options", json.dumps(our_options(form, root, folder)), "--sources", *SOURCES]
        rows = run_application(running, topic, *words, rounds=chosen.rounds, module="bench.stream_application")
    found: Rounds = {}
    for row in rows:
        if row["run"] > 0:
            found.setdefault(row["source"], []).append(Round(row["wall"], row["cpu"]))
    whole = {row["source"]: row["rows"] for row in rows if row["source"] in (*KAFKA, "tierlog-preferred")}
    equal(f"{form}, rows of the topic", whole)
    of_tier = {row["source"]: row["rows"] for row in rows if row["source"] in ("tierlog-jar", "tierlog-python")}
    equal(f"{form}, rows of the tier", {"offsets": tiered} | of_tier)
    for ours, told in OURS.items():
        for peer, name in KAFKA.items():
            bar = BARS.get(form, {}).get(ours)
            suite.seconds(f"{form}, {told}", found, peer, ours=ours, name=name, bar=bar)
    cpu = {
        source: [row["broker_cpu"] for row in rows if row["source"] == source and row["run"] > 0]
        for source in (*KAFKA, "tierlog-preferred")
    }
    least = min(statistics.median(cpu[source]) for source in KAFKA)
    part = statistics.median(cpu["tierlog-preferred"]) / max(least, 0.01)
    told = (
        f"tier, then broker {spread(cpu['tierlog-preferred'], '.2f')}; Kafka source {spread(cpu['kafka-tuned'], '.2f')}"
    )
    what = f"{form}, tier, then broker: the broker's CPU s, × Kafka source"
    suite.add(what, told, part, BROKER_BAR if form == "plain" else None, least=False)
    shutil.rmtree(folder)


# ---- triggers that find nothing

PARTITIONS, SEGMENTS, TRIGGERS = 1000, 3, 15
#: Partitions, and segments of each: more objects than a page of a listing has.
LARGE = (20, 1000)
TRIGGER_MS_BAR = 50.0


def tier_of(root: pathlib.Path, partitions: int, segments: int = SEGMENTS) -> Iterator[RemoteLogSegmentMetadata]:
    """A bucket of small segments, and their metadata."""
    root.mkdir(parents=True)
    for partition in range(partitions):
        for number in range(segments):
            batches = [message(offset, "x", 0) for offset in range(2 * number, 2 * number + 2)]
            made = make_segment(batches, topic="followed", partition=partition, lineage={0: 0})
            made.stored(chunk_size=1 << 16, compression=False, key_ring=None, prefix="").put_in(root)
            yield made.metadata


def publish(bootstrap: str, folder: pathlib.Path, segments: Iterator[RemoteLogSegmentMetadata]) -> None:
    """The metadata of finished segments into a cluster's topic, as brokers write it."""
    with KafkaMetadataLogs(manager_config(bootstrap, folder)).open(timeout_seconds=60) as log:
        told = []
        for segment in segments:
            number = segment.topic_id_partition.partition % log.partition_count
            started = replace(segment, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
            finished = RemoteLogSegmentMetadataUpdate(
                segment.remote_log_segment_id,
                event_timestamp_ms=segment.event_timestamp_ms,
                custom_metadata=None,
                state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                broker_id=1,
            )
            told += [log.append(number, encode_record(each)) for each in (started, finished)]
        for future in told:
            future.result(60)


def trigger_ms(options: dict[str, str], partitions: int, rounds: int) -> list[float]:
    """Milliseconds of the child's CPU for a trigger, each of which looks at the tier."""
    found = []
    with PlannerChild() as child:
        words = {"op": "stream", "stream": "s", "options": options | {"refreshInterval": "100ms"}}

        def ask(question: str, **more: Any) -> dict[str, Any]:
            ((_, body),) = child.iter_answer(words | {"ask": question} | more)
            told: dict[str, Any] = json.loads(body)["offsets"]
            return told

        begun = ask("begin")
        assert sum(map(len, begun.values())) == partitions
        for _ in range(rounds):
            before = cpu_seconds(child.process.pid)
            for _ in range(TRIGGERS):
                time.sleep(0.5)
                assert ask("ends") == ask("next", start=begun) == begun
            found.append((cpu_seconds(child.process.pid) - before) / TRIGGERS * 1000)
    return found


def trigger_listings(options: dict[str, str], partitions: int, proxy: FaultProxy) -> list[int]:
    """How many requests of each trigger list keys."""
    found = []
    with PlannerChild() as child:
        words = {"op": "stream", "stream": "s", "options": options | {"refreshInterval": "1ms"}}

        def ask(question: str) -> dict[str, Any]:
            ((_, body),) = child.iter_answer(words | {"ask": question})
            told: dict[str, Any] = json.loads(body)["offsets"]
            return told

        assert sum(map(len, ask("begin").values())) == partitions
        for _ in range(WHOLE_LISTING_EACH):
            before = len(proxy.seen)
            ask("ends")
            time.sleep(0.5)
            found.append(sum("list-type=2" in each.query for each in proxy.seen[before:]))
    return found


def measure_listings(suite: Suite, folder: pathlib.Path, buckets: dict[pathlib.Path, tuple[int, int]]) -> None:
    """Triggers over S3 that find nothing.

    Args:
        suite: Takes the rows.
        folder: Of the server.
        buckets: By folder: partitions, and segments of each.
    """
    folder.mkdir()
    with seaweed(folder) as server, FaultProxy.before(server) as proxy:
        for bucket, (partitions, segments) in buckets.items():
            options = {"path": server.upload(bucket, bucket.name), "subscribe": "followed"}
            options |= {**server.options, "store.endpoint": proxy.endpoint, "startingOffsets": "latest"}
            found = trigger_listings(options, partitions, proxy)
            told = f"{statistics.mean(found):.1f} on average: each tenth lists everything, by {max(found)}"
            what = f"a trigger that finds nothing in {partitions} partitions of {segments} segments, S3, LIST requests"
            suite.add(what, told, statistics.median(found), partitions, least=False)


def measure_triggers(suite: Suite, folder: pathlib.Path, chosen: Any) -> None:
    root, partitions = folder / "bucket", max(1, int(PARTITIONS * chosen.scale))
    with broker.running(folder / "broker", heap="1g") as running:
        publish(running.bootstrap, folder / "manager", tier_of(root, partitions))
        options = {"path": str(root), "subscribe": "followed", "startingOffsets": "latest"}
        for name, more, bar in (
            ("live metadata", {"metadata": running.bootstrap}, TRIGGER_MS_BAR),
            ("the listing of a folder", {}, None),
        ):
            found = trigger_ms(options | more, partitions, chosen.rounds)
            what = f"a trigger that finds nothing in {partitions} partitions by {name}, ms of CPU"
            suite.add(what, f"{spread(found, '.1f')} ms", statistics.median(found), bar, least=False)
    large = max(1, int(LARGE[0] * chosen.scale)), LARGE[1]
    for _ in tier_of(folder / "large", *large):
        continue
    measure_listings(suite, folder / "store", {root: (partitions, SEGMENTS), folder / "large": large})


def main() -> None:
    chosen = arguments(__doc__, PARTS, forms="plain,zstd+AES" if plugin.jars() else "plain", codec="none", work="")
    suite = Suite("spark_streams", install.versions())
    with work_folder(chosen.work) as folder:
        if "triggers" in chosen.parts:
            measure_triggers(suite, folder / "triggers", chosen)
        for form in chosen.forms.split(",") if "queries" in chosen.parts else ():
            form = form.replace("zstd+AES", "zstd + AES")
            measure(suite, folder / form.replace(" + ", "-"), form, chosen)
    suite.save()


if __name__ == "__main__":
    main()
