"""Many partitions, many readers, for minutes: is memory flat, does anything fail, how long does a fetch take.

``python -m bench.fetch_soak [--minutes 10] [--readers 100] [--partitions 10000] [--cache memory|disk|none]``

Each reader follows one partition after another as a broker's consumer does: an open-ended fetch, a mebibyte of it,
close; then from where she was, now and then from somewhere else. The store is in memory, behind the reading half of
ObjectStore as if behind a network, so that what is measured is ours.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import random
import tempfile
import threading
import time

from tests.support.tiered_segments import Bucket, Segment, make_segment, sound_log, throwaway_keys
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.fetch.segment_fetch import SegmentFetcher

MIB = 1 << 20
DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"


def resident_bytes() -> int:
    """Resident bytes of this process."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


class ManyPartitions(Bucket):
    """One set of objects under the names of all partitions; keeps no list of what was asked."""

    template: Segment

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> memoryview:
        """A range of the objects that all partitions share."""
        suffix = key.rpartition(".")[2]
        data = self.template.objects[f"{self.template.base}.{suffix}"]
        if suffix == "rsm-manifest":  # each names its own partition
            partition = key.split("/")[1]
            data = data.replace(b'"partition":0}', b'"partition":%s}' % partition.encode())
        return memoryview(data)[start_position:end_position_exclusive]


@dataclasses.dataclass
class Reader:
    """One consumer."""

    fetcher: SegmentFetcher
    partitions: list[RemoteLogSegmentMetadata]
    log: bytes
    chance: random.Random
    deadline: float
    seconds: list[float] = dataclasses.field(default_factory=list)
    failures: list[BaseException] = dataclasses.field(default_factory=list)
    read_bytes: int = 0

    def run(self) -> None:
        """Until the deadline."""
        metadata, position = self.chance.choice(self.partitions), 0
        while time.monotonic() < self.deadline:
            if position >= len(self.log) or self.chance.random() < 0.02:
                metadata, position = self.chance.choice(self.partitions), 0
            began = time.monotonic()
            try:
                with self.fetcher.fetch_log_segment(metadata, position) as stream:
                    found = stream.read(MIB)
            except BaseException as error:  # noqa: BLE001 - told at the end
                self.failures.append(error)
                continue
            self.seconds.append(time.monotonic() - began)
            assert found == self.log[position : position + MIB]
            position += len(found)
            self.read_bytes += len(found)


def partitions_of(template: Segment, count: int) -> list[RemoteLogSegmentMetadata]:
    """The template's metadata under other partitions."""
    own = template.metadata.remote_log_segment_id
    return [
        dataclasses.replace(
            template.metadata,
            remote_log_segment_id=dataclasses.replace(
                own, topic_id_partition=dataclasses.replace(own.topic_id_partition, partition=number)
            ),
        )
        for number in range(count)
    ]


def main() -> None:
    """Print a line every tenth of the time, and what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--cache", choices=("memory", "disk", "none"), default="memory")
    parser.add_argument("--cache-mib", type=int, default=256)
    arguments = parser.parse_args()
    keys = throwaway_keys(DATA)
    log, end_offset = sound_log(16 * MIB, batch_bytes=64 << 10)
    template = make_segment(log, end_offset=end_offset, compression=True, key_ring=keys, chunk_size=4 * MIB)
    bucket = ManyPartitions()
    bucket.template = template
    with tempfile.TemporaryDirectory() as folder:
        options = {"fetch.chunk.cache.path": folder} if arguments.cache == "disk" else {}
        if arguments.cache != "none":
            options |= {
                "fetch.chunk.cache.class": arguments.cache,
                "fetch.chunk.cache.size": str(arguments.cache_mib * MIB),
            }
        fetcher = SegmentFetcher(bucket, read_storage_config(options), keys)  # type: ignore[arg-type]
        deadline = time.monotonic() + arguments.minutes * 60
        partitions = partitions_of(template, arguments.partitions)
        readers = [Reader(fetcher, partitions, log, random.Random(seed), deadline) for seed in range(arguments.readers)]
        threads = [threading.Thread(target=reader.run) for reader in readers]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, arguments.minutes * 6))
            done = sum(reader.read_bytes for reader in readers)
            at, resident = time.monotonic() - began, resident_bytes() // MIB
            print(f"{at:6.0f} s  {resident} MiB resident, {done / MIB / at:.0f} MiB/s read", flush=True)
        for thread in threads:
            thread.join()
        fetcher.close()
    seconds = sorted(second for reader in readers for second in reader.seconds)
    failures = [failure for reader in readers for failure in reader.failures]
    shown = ", ".join(f"p{share} {seconds[len(seconds) * share // 100] * 1000:.0f} ms" for share in (50, 90, 99))
    print(f"{len(seconds)} fetches, {shown}; {len(failures)} failed {set(map(repr, failures)) or ''}")


if __name__ == "__main__":
    main()
