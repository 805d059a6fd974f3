"""Reads by time must begin where Kafka's own ListOffsets says."""

from __future__ import annotations

import json
import pathlib
import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.conftest import DATA, FIXTURES
from tests.support.batches import Batch, encode
from tests.support.buckets import Bucket
from tests.support.golden import Case, config_of, list_offsets, tiered_offsets, tiered_topics
from tierlog import open_tier
from tierlog.errors import ConfigError
from tierlog.scan.history import TierHistory
from tierlog.scan.planning.offset_lookup import fetch_borders, find_offset_by_timestamp
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_request import RecordFilter, ScanRequest, TopicSelection

CASES = [*tiered_topics(DATA), *(tiered_topics(FIXTURES) if (FIXTURES / "README.md").is_file() else ())]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.run.parent.name}-{case}")
def test_every_answer_of_the_broker(case: Case) -> None:
    """A read by time would begin at another record than a consumer that seeks by time."""
    if not (case.run / "expected" / f"{case.topic}.listoffsets.json").exists():
        pytest.skip(f"no answers for {case}")
    tiered = tiered_offsets(case)
    asked = 0
    with open_tier(str(case.objects), config=config_of(case.run)) as tier:
        for history in TierHistory(tier).partitions([case.topic]):
            first, last = tiered[history.partition]
            assert (history.earliest_offset, history.end_offset_exclusive) == (first, last + 1)
            for question, answer in list_offsets(case)[history.partition].items():
                if not question.startswith("ts:") or "error" in answer or 0 <= answer["offset"] < first:
                    continue
                asked += 1
                found = find_offset_by_timestamp(tier, history, int(question[3:]))
                if not first <= answer["offset"] <= last:
                    assert found is None, question
                else:
                    assert found is not None, question
                    assert (found.offset, found.timestamp_ms) == (answer["offset"], answer["timestamp"]), question
    assert asked, "the answers hold no question by time"


def test_the_time_index_may_be_missing_or_wrong(tmp_path: pathlib.Path) -> None:
    """One damaged index would make a read by time fail, or begin too late."""
    bucket = Bucket(tmp_path)
    batches = [Batch(10 * n, (b"v",) * 10, timestamp_ms=1000 * n) for n in range(20)]
    bucket.segment("u1", batches, lineage={0: 0})
    manifest = json.loads(bucket.path("u1", "rsm-manifest").read_text())
    place = manifest["segmentIndexes"]["timestamp"]
    whole = bytearray(bucket.path("u1", "indexes").read_bytes())
    for content in (b"\xff" * place["size"], b"\0" * place["size"]):
        whole[place["position"] : place["position"] + place["size"]] = content
        bucket.path("u1", "indexes").write_bytes(whole)
        with open_tier(str(tmp_path)) as tier:
            (history,) = TierHistory(tier).partitions(["orders"])
            found = find_offset_by_timestamp(tier, history, 7003)
        assert found is not None
        assert found.offset == 73


def test_equal_timestamps_begin_at_the_first_record(tmp_path: pathlib.Path) -> None:
    """Of several records of the wanted millisecond the first ones would be left out."""
    batches = [Batch(3 * n, (b"v",) * 3, timestamp_ms=t) for n, t in enumerate([10, 18, 20, 20, 20, 30])]
    Bucket(tmp_path).segment("u1", batches, lineage={0: 0})
    with open_tier(str(tmp_path)) as tier:
        (history,) = TierHistory(tier).partitions(["orders"])
        found = [find_offset_by_timestamp(tier, history, t) for t in (20, 21, 22, 23, 31, 32, 33)]
    assert [f and f.offset for f in found] == [5, 7, 8, 15, 16, 17, None]


def test_a_late_record_on_a_dead_branch_does_not_end_the_search(tmp_path: pathlib.Path) -> None:
    """The search would stop at a segment whose only late record was truncated away."""
    bucket = Bucket(tmp_path)
    bucket.segment("u1", [Batch(0, timestamp_ms=10), Batch(1, timestamp_ms=99)], lineage={0: 0})
    bucket.segment("u2", [Batch(1, timestamp_ms=50, epoch=1)], lineage={0: 0, 1: 1})
    with open_tier(str(tmp_path)) as tier:
        (history,) = TierHistory(tier).partitions(["orders"])
        found = find_offset_by_timestamp(tier, history, 50)
        assert found is not None
        assert found.offset == 1
        assert find_offset_by_timestamp(tier, history, 51) is None


def test_no_match_is_an_error_or_the_end_as_asked(tmp_path: pathlib.Path) -> None:
    """Spark's startingOffsetsByTimestampStrategy would not be kept."""
    Bucket(tmp_path).segment("u1", [Batch(0, timestamp_ms=10)], lineage={0: 0})
    topics = TopicSelection.of_names(["orders"])
    with open_tier(str(tmp_path)) as tier:
        with pytest.raises(ConfigError, match=r"orders-0.*none of which is of time 11"):
            plan_scan(tier, ScanRequest(topics, starting_timestamps=11))
        plan = plan_scan(tier, ScanRequest(topics, starting_timestamps=11, no_match="latest"))
        assert not plan.ranges
        plan = plan_scan(tier, ScanRequest(topics, ending_timestamps=11))
        assert plan.bounds[0].end_offset_exclusive == 1


class TestTruncatedLog:
    """A running broker's log that was truncated: older entries stand in its indexes behind those in use."""

    @pytest.fixture
    def truth(self, tmp_path: pathlib.Path) -> list[tuple[int, int]]:
        """Offset and timestamp of each record; the fourth batch and those behind it were others before."""
        moment = 1_700_000_000_000
        before = [Batch(2 * n, (b"x" * 150, b"y" * 150), timestamp_ms=moment + 1000 * n) for n in range(8)]
        late = [Batch(6, (b"z" * 100,), timestamp_ms=moment + 3500), Batch(7, (b"w" * 2500, b"q"))]
        now = [*before[:3], late[0], replace(late[1], timestamp_ms=moment + 3600)]
        folder = tmp_path / "orders-0"
        folder.mkdir()
        (folder / f"{0:020d}.log").write_bytes(b"".join(map(encode, now)))
        for suffix, form, size_bytes in ((".index", ">ii", 800), (".timeindex", ">qi", 1200)):
            index = b"".join(struct.pack(form, *entry[suffix]) for entry in self.entries(now))
            index += b"".join(struct.pack(form, *entry[suffix]) for entry in self.entries(before))[len(index) :]
            (folder / f"{0:020d}{suffix}").write_bytes(index.ljust(size_bytes, b"\0"))
        return [(batch.base_offset + n, batch.timestamp_ms + n) for batch in now for n in range(len(batch.values))]

    @staticmethod
    def entries(batches: list[Batch]) -> Iterator[dict[str, tuple[int, int]]]:
        position = 0
        for batch in batches:
            yield {".index": (batch.last_offset, position), ".timeindex": (batch.max_timestamp_ms, batch.last_offset)}
            position += len(encode(batch))

    def test_every_bound_is_answered(self, tmp_path: pathlib.Path, truth: list[tuple[int, int]]) -> None:
        """A read of a live follower would begin in the middle of a batch, or behind records that it should give."""
        topics = TopicSelection.of_names(["orders"])
        offsets = [offset for offset, _ in truth]
        with open_tier(str(tmp_path)) as tier:

            def given(**bounds: object) -> list[int]:
                plan = plan_scan(tier, ScanRequest(topics, clamp_offsets=True, no_match="latest", **bounds))  # type: ignore[arg-type]
                rows = [rows for each in plan.ranges for rows in read_scan_range(tier, each, columns=["offset"])]
                return [offset for batch in rows for offset in batch["offset"].to_pylist()]

            for offset, timestamp_ms in truth:
                assert given(starting_offsets=offset) == [each for each in offsets if each >= offset]
                assert given(ending_offsets=offset) == [each for each in offsets if each < offset]
                first = next(each for each, at in truth if at >= timestamp_ms)
                assert given(starting_timestamps=timestamp_ms) == [each for each in offsets if each >= first]
                late = RecordFilter(first_timestamp_ms=timestamp_ms)
                assert given(record_filter=late) == [each for each, at in truth if at >= timestamp_ms]

    def test_entries_in_use_still_help(self, tmp_path: pathlib.Path, truth: list[tuple[int, int]]) -> None:
        """The tail of a live segment would cost reading all of it."""
        with open_tier(str(tmp_path)) as tier:
            (segment,) = tier.iter_segments()
            borders = fetch_borders(tier, segment)
        assert borders.offsets.tolist() == [1, 3, 5, 6, 8]
        assert truth[-1][0] == 8
