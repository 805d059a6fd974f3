"""Two real brokers that tier through the plugin, or one through it and the other through the Aiven plugin."""

from __future__ import annotations

import base64
import json
import pathlib
import shutil
import subprocess
import zlib
from collections.abc import Callable, Mapping

import pytest

from tests.support.broker_pair import BEGINS, STAYS, TOPIC, BrokerPair, eventually, segments
from tests.support.command import run_process
from tests.support.metadata_cluster import delete_topic, needs_a_broker
from tests.support.peers import install, plugin
from tests.support.plugin_brokers import FORMS, broker_keys, form_keys, s3_keys
from tests.support.servers import BUCKET, StoreServer
from tests.support.sidecars import storage_keys
from tests.support.spark_driver import answers_of

pytestmark = pytest.mark.interop

SETTINGS = {
    "remote_storage_enable": "true",
    "internal_segment_bytes": "16384",
    "index_interval_bytes": "256",
    "local_retention_bytes": "1",
    "retention_ms": "-1",
}
LEVELS = ("read_uncommitted", "read_committed")


def needs_the_other_plugin() -> None:
    if not plugin.jars():
        pytest.skip(plugin.HOW)


def is_tiered(pair: BrokerPair, node: int) -> bool:
    return len(segments(pair.partition(node))) < 3


def catted(root: str, keys: Mapping[str, str], folder: pathlib.Path, *arguments: str) -> dict[int, bytes]:
    """Offset to value of what `tierlog cat` reads of the bucket."""
    config = folder / "cat.properties"
    config.write_text("".join(f"rsm.config.{name}={value}\n" for name, value in keys.items()))
    done = run_process("cat", root, TOPIC, "--format", "json", "--config", config, *arguments)
    assert done.code == 0, done.err
    rows = map(json.loads, done.out.splitlines())
    return {row["offset"]: base64.b64decode(row["value"]) for row in rows}


def check_spark(root: str, read: Mapping[int, bytes], folder: pathlib.Path) -> None:
    """Spark's jar reads of the bucket what `tierlog cat` has read, with the same configuration."""
    options = {"path": root, "subscribe": TOPIC, "rsm.config.file": str(folder / "cat.properties"), "engine": "jar"}
    asked = ["count(value)", "max(offset)", "sum(crc32(value))"]
    assert answers_of([options], *asked) == [[True, len(read), max(read), sum(map(zlib.crc32, read.values()))]]


def test_two_brokers_live_with_it(tmp_path: pathlib.Path, s3: StoreServer, data: pathlib.Path) -> None:
    """If this fails, records are lost or doubled when a leader changes, or a follower begins in the tier."""
    needs_a_broker()
    keys = s3_keys(s3, f"{tmp_path.name}/") | form_keys("zstd + AES", data, tmp_path)
    pair = BrokerPair(tmp_path, lambda _: broker_keys(keys, ours=True))
    try:
        pair.start_both()
        pair.make_topic(**SETTINGS)
        pair.produce(leaves_open=False)
        eventually(lambda: is_tiered(pair, STAYS), expected=True)
        rows = {level: pair.consumed(BEGINS, level) for level in LEVELS}
        assert 0 < len(rows["read_committed"]) < len(rows["read_uncommitted"])
        url = f"s3://{BUCKET}"
        read = catted(url, {**keys, **s3.options}, tmp_path)
        theirs = {offset: value for offset, value, _ in rows["read_uncommitted"]}
        assert len(read) > 500
        assert read.items() <= theirs.items(), "the bucket has what consumers get"
        check_spark(url, read, tmp_path)

        pair.kill(BEGINS)
        eventually(lambda: pair.state(STAYS)[0], STAYS)
        assert pair.consumed(STAYS, "read_committed") == rows["read_committed"]
        pair.produce(leaves_open=False)
        eventually(lambda: is_tiered(pair, STAYS), expected=True)
        shutil.rmtree(pair.partition(BEGINS))
        pair.start(BEGINS)
        eventually(lambda: pair.state(STAYS), (STAYS, {STAYS, BEGINS}))
        assert segments(pair.partition(BEGINS))[0] > 0, "its log begins in the tier"
        rows = {level: pair.consumed(STAYS, level) for level in LEVELS}
        pair.elect_the_preferred()
        # Not of committed records: Kafka's follower deletes the producer snapshot that it has just restored from the
        # tier, and shows aborted records of a transaction that goes across that border.
        assert pair.consumed(BEGINS, "read_uncommitted") == rows["read_uncommitted"]

        reassign(pair, [STAYS])
        eventually(lambda: pair.state(STAYS), (STAYS, {STAYS}))
        assert pair.consumed(STAYS, "read_committed") == rows["read_committed"]
        delete_topic(pair.bootstrap(STAYS), TOPIC)
        eventually(lambda: objects_left(url, keys | dict(s3.options), tmp_path), [])
    finally:
        pair.close()


def reassign(pair: BrokerPair, replicas: list[int]) -> None:
    """Move the partition to other replicas, as Kafka's tool does it."""
    plan = pair.folder / "reassign.json"
    moved = {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": replicas}]}
    plan.write_text(json.dumps(moved))
    main = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    tool = [install.java(), "-cp", install.class_path("kafka"), main]
    asked = ["--bootstrap-server", pair.bootstrap(STAYS), "--reassignment-json-file", str(plan), "--execute"]
    subprocess.run([*tool, *asked], check=True, capture_output=True)


def objects_left(url: str, keys: Mapping[str, str], folder: pathlib.Path) -> list[str]:
    config = folder / "ls.properties"
    config.write_text("".join(f"rsm.config.{name}={value}\n" for name, value in keys.items()))
    done = run_process("ls", url, TOPIC, "--config", config, "--output", "json")
    return [line for line in done.out.decode().splitlines() if TOPIC in line] if done.code == 0 else []


@pytest.mark.parametrize("form", FORMS)
def test_each_plugin_reads_what_the_other_wrote(tmp_path: pathlib.Path, data: pathlib.Path, form: str) -> None:
    """If this fails, a cluster cannot be moved from one plugin to the other, or back, while it runs."""
    needs_a_broker()
    needs_the_other_plugin()
    (tmp_path / "bucket").mkdir()
    keys = storage_keys(tmp_path / "bucket") | form_keys(form, data, tmp_path)
    ours: dict[int, bool] = {STAYS: False, BEGINS: False}
    pair = BrokerPair(tmp_path, lambda node: broker_keys(keys, ours=ours[node]))
    seen: dict[str, list[tuple[int, bytes, int]]] = {level: [] for level in LEVELS}

    def check() -> None:
        leader, before = pair.state(STAYS)[0], dict(seen)
        for level in LEVELS:
            seen[level] = pair.consumed(leader, level)
            assert seen[level][: len(before[level])] == before[level], f"{level} from {leader}"

    def go_on(change: Callable[[], None]) -> None:
        change()
        eventually(lambda: pair.state(STAYS)[1], {STAYS, BEGINS})
        pair.produce(leaves_open=False)
        eventually(lambda: is_tiered(pair, pair.state(STAYS)[0]), expected=True)
        check()

    def moved(node: int, *, to_ours: bool) -> None:
        """A rolling change: one broker after the other."""
        pair.stop(node)
        ours[node] = to_ours
        pair.start(node)
        eventually(lambda: pair.state(STAYS)[1], {STAYS, BEGINS})
        if pair.state(STAYS)[0] != BEGINS:
            pair.elect_the_preferred()

    try:
        pair.start_both()
        pair.make_topic(**SETTINGS)
        go_on(lambda: None)
        go_on(lambda: moved(BEGINS, to_ours=True))
        go_on(lambda: moved(STAYS, to_ours=True))
        go_on(lambda: moved(BEGINS, to_ours=False))
        read = catted(str(tmp_path / "bucket"), keys, tmp_path)
        assert read.items() <= {offset: value for offset, value, _ in seen["read_uncommitted"]}.items()
        assert len(read) > 2000
        check_spark(str(tmp_path / "bucket"), read, tmp_path)
        delete_topic(pair.bootstrap(STAYS), TOPIC)
        eventually(lambda: [path for path in (tmp_path / "bucket").rglob("*") if path.is_file()], [])
    finally:
        pair.close()
