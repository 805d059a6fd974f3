"""Kafka Connect reads every golden bucket through ``tierlog replica``: its file sink, and MirrorMaker 2's source."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator, Sequence

import pytest

from tests.support.connect import AS_BYTES, AS_TEXT, committed, connect_worker, has_records, mirror
from tests.support.golden import ISOLATIONS, tiered_offsets
from tests.support.golden_replicas import expected_reads, golden_replicas
from tests.support.metadata_cluster import needs_a_broker
from tests.support.peers import broker
from tests.support.replica_readers import ReadRow, confluent, expected_rows, plain_text

pytestmark = pytest.mark.interop

PATIENCE_SECONDS = 180.0
CONFIG = {"group.initial.rebalance.delay.ms": "0"}


def test_the_file_sink_writes_what_a_real_consumer_read(fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A connector that replays history into another system would leave that with other records than the broker had."""
    needs_a_broker()
    compared = 0
    for server, cases in golden_replicas(fixtures, tmp_path, CONFIG):
        folder = pathlib.Path(server.log.parent)
        connectors, wanted = {}, {}
        for case, isolation, expected in expected_reads(cases):
            if any(isinstance(value, str) for *_, value, _ in expected):
                continue  # of large values the golden data has digests, which text does not give
            name = f"{case.topic}-{isolation}"
            wanted[name] = case.topic, expected
            connectors[name] = {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
                "topics": case.topic,
                "file": str(folder / f"{name}.txt"),
                "consumer.override.isolation.level": isolation,
            }
        with connect_worker(folder, server.bootstrap, connectors, AS_TEXT) as worker:
            for name, (_, expected) in wanted.items():
                file, text = folder / f"{name}.txt", text_of(expected)
                is_whole = functools.partial(has_lines, file, text.count("\n"))
                worker.wait_until(is_whole, f"{name} has all records", seconds=PATIENCE_SECONDS)
        for name, (topic, expected) in wanted.items():
            written = (folder / f"{name}.txt").read_bytes().decode()
            assert sorted(plain_text(written).split("\n")) == sorted(plain_text(text_of(expected)).split("\n")), name
            last = {partition: offset + 1 for partition, offset, *_ in expected}
            assert committed(server.bootstrap, f"connect-{name}", topic, last) == last, name
            compared += 1
    assert compared > 60


def text_of(rows: Sequence[ReadRow]) -> str:
    """What the file sink writes of records whose values are text to it, as far as order counts for nothing."""
    values = ("null" if value is None else bytes(value).decode(errors="replace") for *_, value, _ in rows)  # type: ignore[arg-type]
    return "".join(f"{value}\n" for value in values)


def has_lines(file: pathlib.Path, count: int) -> bool:
    return file.exists() and file.read_bytes().count(b"\n") >= count


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Kafka that copies go to."""
    needs_a_broker()
    folder = tmp_path_factory.mktemp("target")
    with broker.running(folder / "broker", heap="512m", jars="kafka-log") as started:
        yield started.bootstrap


def test_mirror_maker_copies_what_a_real_consumer_read(
    target: str, fixtures: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A cluster that is filled again from its bucket would hold other records than the one that was lost."""
    compared = 0
    for server, cases in golden_replicas(fixtures, tmp_path):
        folder = pathlib.Path(server.log.parent)
        aliases = {isolation: f"{folder.name}-{isolation}" for isolation in ISOLATIONS}
        connectors = {alias: mirror(server.bootstrap, target, alias, isolation) for isolation, alias in aliases.items()}
        with connect_worker(folder, target, connectors, AS_BYTES) as worker:
            for case in cases:
                for isolation, alias in aliases.items():
                    expected = expected_rows(case, isolation)
                    if not expected:
                        continue
                    topic, partitions = f"{alias}.{case.topic}", sorted(tiered_offsets(case))
                    is_whole = functools.partial(has_records, target, topic, len(expected))
                    worker.wait_until(is_whole, f"{topic} has all records", seconds=PATIENCE_SECONDS)
                    found = confluent(target, topic, "read_uncommitted", partitions)
                    assert without_offsets(found) == without_offsets(expected), f"{case} {isolation}"
                    compared += 1
    assert compared > 60


def without_offsets(rows: Sequence[ReadRow]) -> list[tuple[object, ...]]:
    """In the order of each partition: a copy has no gaps."""
    return [(row[0], *row[2:]) for row in rows]
