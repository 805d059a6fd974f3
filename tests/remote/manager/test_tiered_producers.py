"""Producers at any offset of the tier: compared with those that the log had when it ended there."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.scenarios.two_brokers import Cluster
from tests.support.tiered_brokers import CONFIG
from tierlog.errors import CorruptRecordError
from tierlog.log.formats.producer_snapshot import ProducerEntry, parse_producer_snapshot
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.manager.remote_source import RemoteLog, RemoteSource
from tierlog.remote.manager.tiered_producers import TieredProducers


class Written:
    """A log that a seed wrote and tiered, and its producers at the end of each append."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.at: dict[int, dict[int, ProducerEntry]] = {0: {}}
        rng = random.Random(seed)
        sequences: dict[int, int] = {}
        cluster.elect(1)
        for _ in range(60):
            producer = rng.choice([7, 8, 9])
            match rng.randrange(6):
                case 0:
                    cluster.append(0, b"of no producer")
                case 1 if sequences:
                    cluster.abort(0, producer=rng.choice(list(sequences)))
                case 2:
                    cluster.elect(1)
                case 3:
                    cluster.roll()
                case _:
                    sequences[producer] = sequences.get(producer, -1) + 1
                    cluster.append_transactional(0, sequences[producer], producer=producer)
            self._note()
        for producer in sequences:  # an open transaction holds up the copies
            cluster.abort(0, producer=producer)
            self._note()
        cluster.roll()
        cluster.append(0, b"of the open segment")
        cluster.settle()
        self.segments = cluster.tier()

    def _note(self) -> None:
        log = self.cluster.replica(1).log
        entries = log._contents.producers.snapshot()
        self.at[log.log_end_offset] = {entry.producer_id: entry for entry in entries}

    def producers(self, source: RemoteSource | None = None) -> TieredProducers:
        services = self.cluster.brokers[1].services
        return TieredProducers(services.metadata, source or RemoteSource(services.storage))


def entries_of(data: bytes | memoryview) -> dict[int, ProducerEntry]:
    return {entry.producer_id: entry for entry in parse_producer_snapshot(data).entries}


def inside(segment: RemoteLogSegmentMetadata, offsets: dict[int, dict[int, ProducerEntry]]) -> list[int]:
    return [offset for offset in offsets if segment.start_offset < offset <= segment.end_offset + 1]


@pytest.mark.parametrize("seed", range(5))
def test_they_are_those_of_the_log(seed: int) -> None:
    """If this fails, a follower that begins there refuses its leader's batches, or shows what was aborted."""
    with Cluster(config=replace(CONFIG, local_retention_bytes=1 << 30)) as cluster:
        written = Written(cluster, seed)
        producers = written.producers()
        assert len(written.segments) > 3
        for segment in written.segments:
            for offset in inside(segment, written.at):
                assert entries_of(producers.snapshot_at(segment, offset)) == written.at[offset], (segment, offset)


class Window(RemoteSource):
    """A source that notes what is read, and may change it."""

    flipped: int | None = None

    def fetch_range(self, log: RemoteLog, start: int, end_exclusive: int, *, least_bytes: int) -> list[memoryview]:
        data = bytearray(b"".join(super().fetch_range(log, start, end_exclusive, least_bytes=least_bytes)))
        if self.flipped is not None:
            data[self.flipped] ^= 1
        return [memoryview(data)]


def test_a_damaged_batch_is_named() -> None:
    """If this fails, a follower takes over what a damaged segment says of its producers."""
    with Cluster(config=replace(CONFIG, local_retention_bytes=1 << 30)) as cluster:
        written = Written(cluster, 1)
        source = Window(cluster.brokers[1].services.storage)
        producers = written.producers(source)
        segment = next(each for each in written.segments if len(inside(each, written.at)) > 3)
        offsets = inside(segment, written.at)
        source.flipped = 62
        with pytest.raises(CorruptRecordError, match="checksum") as raised:
            producers.snapshot_at(segment, offsets[1])
        assert raised.value.position == 0
        assert str(segment.remote_log_segment_id) in str(raised.value)
        source.flipped = segment.segment_size_in_bytes - 1
        assert entries_of(producers.snapshot_at(segment, offsets[1])) == written.at[offsets[1]], "what lies behind"
        source.flipped = None
        with pytest.raises(CorruptRecordError, match="ends below"):
            producers.snapshot_at(replace(segment, end_offset=segment.end_offset + 9), segment.end_offset + 5)


def test_with_nothing_in_front_there_are_those_of_the_segment() -> None:
    """If this fails, a partition whose oldest segments have expired cannot be followed."""
    with Cluster(config=replace(CONFIG, local_retention_bytes=1 << 30)) as cluster:
        written = Written(cluster, 2)
        segment = written.segments[1]
        metadata = cluster.brokers[1].services.metadata
        found = metadata.remote_log_segment_metadata
        front = written.segments[0].end_offset

        class Expired:
            def remote_log_segment_metadata(self, *asked: object) -> RemoteLogSegmentMetadata | None:
                return None if asked[2] == front else found(*asked)  # type: ignore[arg-type]

        source = RemoteSource(cluster.brokers[1].services.storage)
        producers = TieredProducers(Expired(), source)  # type: ignore[arg-type]
        offset = inside(segment, written.at)[-2]
        before, then = written.at[segment.start_offset], written.at[offset]
        changed = {producer for producer, entry in then.items() if before.get(producer) != entry}
        assert entries_of(producers.snapshot_at(segment, offset)).keys() == changed != set()
        assert (
            entries_of(source.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT)) == written.at[segment.end_offset + 1]
        )
