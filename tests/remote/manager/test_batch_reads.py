"""Batches of the tier, read by threads: what the replica's tests show of an event loop holds for a manager's pool."""

from __future__ import annotations

import pathlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.support.segments import make_segment, sound_log
from tierlog.errors import CorruptRecordError
from tierlog.records import scan
from tierlog.remote.config import read_storage_config
from tierlog.remote.manager.batch_reads import BatchChecks, BatchReads, WantedBatches
from tierlog.remote.storage.fetch.segment_reader import SegmentReader
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.waits import WaitingThreads

MIB = 1 << 20


@pytest.mark.parametrize("compression", [True, False], ids=["zstd", "plain"])
def test_threads_read_what_the_log_holds(compression: bool, tmp_path: pathlib.Path) -> None:
    """If this fails, a consumer behind a broker's local retention gets other bytes than were copied, or none."""
    log = sound_log(500, batch_bytes=4096)
    made = make_segment(log).stored(chunk_size=1 << 16, compression=compression)
    made.put_in(tmp_path)
    end_offset = made.metadata.end_offset
    machine = Machine()
    config = read_storage_config({"fetch.chunk.cache.class": "memory", "fetch.chunk.cache.size": str(8 * MIB)})
    with open_tier(str(tmp_path)) as tier:
        (segment,) = tier.iter_segments()
        reader = SegmentReader(tier.store, config, tier.key_ring, machine=machine)
        reads, threads = BatchReads(reader, machine, checks=BatchChecks()), WaitingThreads(machine)

        def consume(max_bytes: int) -> bytes:
            got, offset = b"", 0
            while offset <= end_offset:
                wanted = WantedBatches(offset, end_offset + 1, max_bytes, is_first_whole=True)
                found = threads.run(reads.read_waits(segment, wanted))
                assert found is not None
                joined = b"".join(bytes(part) for part in found.records if isinstance(part, memoryview))
                assert (len(joined), found.start_offset) == (found.size_bytes, offset)
                table = scan(joined)
                assert (table.base_offset[0], table.last_offset[-1]) == (found.first_offset, found.last_offset)
                assert log[found.position :].startswith(joined)
                end = int(table.position[-1] + table.size_bytes[-1])
                got, offset = got + joined[:end], found.last_offset + 1
            return got

        with ThreadPoolExecutor(8) as pool:
            assert all(got == log for got in pool.map(consume, [1, 50_000, MIB, 3 * MIB] * 2))
        reader.close()


def test_a_sound_batch_says_nothing_of_others_in_its_chunk(tmp_path: pathlib.Path) -> None:
    """If this fails, a consumer gets a damaged batch when another one has read the batch in front of it."""
    log = sound_log(10, batch_bytes=4096)
    table = scan(log)
    at = int(table.position[1]) + 100
    damaged = log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]
    replace(make_segment(log), log=damaged).stored(compression=True).put_in(tmp_path)
    machine = Machine()
    config = read_storage_config({"fetch.chunk.cache.class": "memory", "fetch.chunk.cache.size": str(8 * MIB)})
    with open_tier(str(tmp_path)) as tier:
        (segment,) = tier.iter_segments()
        reader = SegmentReader(tier.store, config, tier.key_ring, machine=machine)
        reads, threads = BatchReads(reader, machine, checks=BatchChecks()), WaitingThreads(machine)
        end = segment.metadata.end_offset + 1
        first = WantedBatches(0, end, int(table.size_bytes[0]), is_first_whole=True)
        found = threads.run(reads.read_waits(segment, first))
        assert found is not None
        assert found.size_bytes == first.max_bytes
        with pytest.raises(CorruptRecordError):
            threads.run(reads.read_waits(segment, first._replace(offset=int(table.base_offset[1]))))
        reader.close()
