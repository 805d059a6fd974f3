"""Footers as readers of a tier get them: what it costs, and every way in which there is none."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import pickle
import random
import shutil
from collections.abc import Iterator, Mapping

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.footers import RangesStore, fill, footers_in
from tests.support.manager_configs import KEYS, ZSTD
from tests.support.metadata_topic import view_of
from tests.support.segments import make_segment, sound_log
from tierlog.errors import EncryptionKeyError, StoreUnavailableError
from tierlog.remote.tier import StoredSegment, Tier, open_tier
from tierlog.remote.tier.chunks.stored_segment import FooterPlace
from tierlog.runtime.stores.protocol.object_store import ObjectStore

SHAPES: Mapping[str, Mapping[str, str]] = {
    "aiven": {},
    "aiven-zstd-aes": ZSTD | KEYS | {"key.prefix": "a/prefix-", "key.prefix.mask": "true"},
    "kafka": {"layout": "kafka"},
}


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[ClosedSegment]:
    """A small one, and one whose footer is larger than one read."""
    folder = tmp_path_factory.mktemp("made")
    chance = random.Random(3)
    large = (sound_log(1, base_offset=180 + 2 * n, batch_bytes=chance.randint(120, 900)) for n in range(4000))
    logs = [sound_log(base_offset=100), b"".join(large)]
    return [make_segment(log).closed_in(folder) for log in logs]


@contextlib.contextmanager
def reading(folder: pathlib.Path, keys: Mapping[str, str]) -> Iterator[tuple[Tier, list[StoredSegment], RangesStore]]:
    stores: list[RangesStore] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        stores.append(RangesStore(store))
        return stores[-1]

    with open_tier(str(folder), config={"key.prefix": "", **keys}, wrap_store=wrap) as tier:
        yield tier, list(tier.iter_segments()), stores[-1]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_it_costs(segments: list[ClosedSegment], tmp_path: pathlib.Path, shape: str) -> None:
    """If this fails, a count of a topic takes as long as the table of all its batches."""
    fill(tmp_path, segments, SHAPES[shape])
    with reading(tmp_path, SHAPES[shape]) as (tier, (small, large), store):
        for segment, batches, records in ((small, 40, 80), (large, 4000, 8000)):
            totals = tier.footers.fetch_totals(segment)
            assert totals is not None
            assert (totals.batches, totals.records) == (batches, records)
        assert all(start == 0 and size <= 4096 for start, size in store.of("footer"))
        assert len(store.of("footer")) == 2
        for segment, batches in ((small, 40), (large, 4000)):
            for _ in range(2):
                found = tier.footers.fetch_batches(segment)
                assert found is not None
                assert len(found) == batches
        assert [start > 0 for start, _ in store.of("footer")] == [False, False, True]
        assert sum(size for _, size in store.of("footer")) < 4096 + 2 * 4000 + 4096
        assert {kind for kind, _, _ in store.ranges} == {"footer"}


def changed(content: bytes, how: str) -> bytes | None:
    """A footer that is none any more."""
    return {
        "flipped head": bytes([content[0] ^ 4]) + content[1:],
        "flipped totals": content[:60] + bytes([content[60] ^ 16]) + content[61:],
        "flipped table": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        "cut": content[:-1],
        "cut in the totals": content[:80],
        "longer": content + b"\0",
        "empty": b"",
        "absent": None,
    }[how]


HOWS = (
    "flipped head",
    "flipped totals",
    "flipped table",
    "cut",
    "cut in the totals",
    "longer",
    "empty",
    "absent",
)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.few(8)
def test_what_is_none(
    segments: list[ClosedSegment], tmp_path: pathlib.Path, shape: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """If this fails, a damaged footer ends a query or gives a wrong count, or nobody hears of it."""
    fill(tmp_path, segments, SHAPES[shape])
    for path in footers_in(tmp_path):
        content = changed(path.read_bytes(), how)
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    with reading(tmp_path, SHAPES[shape]) as (tier, found, _), caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert [tier.footers.fetch_batches(segment) for segment in found] == [None, None]
            assert [tier.footers.fetch_totals(segment) for segment in found] == [None, None]
        assert tier.footers.passed_over == (0 if how == "absent" else 2)
    told = [record.getMessage() for record in caplog.records if "footer" in record.getMessage()]
    assert len(told) == (how != "absent")
    assert all(".footer" in text and "a/prefix" not in text for text in told)


@pytest.mark.parametrize("shape", SHAPES)
def test_footers_of_other_segments(segments: list[ClosedSegment], tmp_path: pathlib.Path, shape: str) -> None:
    """If this fails, objects that changed places give wrong counts."""
    fill(tmp_path, segments, SHAPES[shape])
    one, other = footers_in(tmp_path)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    with reading(tmp_path, SHAPES[shape]) as (tier, found, _):
        assert [tier.footers.fetch_totals(segment) for segment in found] == [None, None]
        assert tier.footers.passed_over == 2


def test_a_segment_that_was_copied_anew(segments: list[ClosedSegment], tmp_path: pathlib.Path) -> None:
    """If this fails, the footer of an earlier copy of the same id is believed of the later one."""
    fill(tmp_path, segments, SHAPES["aiven-zstd-aes"])
    left = {path: path.read_bytes() for path in footers_in(tmp_path)}
    shutil.rmtree(tmp_path)
    fill(tmp_path, segments, SHAPES["aiven-zstd-aes"], footers=False)
    for path, content in left.items():
        path.write_bytes(content)
    with reading(tmp_path, SHAPES["aiven-zstd-aes"]) as (tier, found, _):
        assert [tier.footers.fetch_totals(segment) for segment in found] == [None, None]
        assert tier.footers.passed_over == 2


def test_without_the_key(segments: list[ClosedSegment], tmp_path: pathlib.Path) -> None:
    """If this fails, who has no key of a segment reads its counts and times, or gets another error than for its log."""
    fill(tmp_path, segments, SHAPES["aiven-zstd-aes"])
    with (
        reading(tmp_path, {"key.prefix": "a/prefix-"}) as (tier, (segment, _), _),
        pytest.raises(EncryptionKeyError, match="no private key"),
    ):
        tier.footers.fetch_totals(segment)


def test_a_store_that_fails_is_no_missing_footer(segments: list[ClosedSegment], tmp_path: pathlib.Path) -> None:
    """If this fails, a store that throttles makes a reader read everything instead."""
    fill(tmp_path, segments, {})
    with reading(tmp_path, {}) as (tier, (segment, _), store):

        def failing(key: str, **_: int) -> bytes:
            raise StoreUnavailableError(key)

        store.fetch_range = failing  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailableError):
            tier.footers.fetch_totals(segment)
        del store.fetch_range
        assert tier.footers.fetch_totals(segment) is not None


@pytest.mark.parametrize("shape", SHAPES)
def test_footers_elsewhere(segments: list[ClosedSegment], tmp_path: pathlib.Path, shape: str) -> None:
    """If this fails, buckets that are read-only have no footers, or half of their segments cannot be read."""
    bucket, others = tmp_path / "bucket", tmp_path / "others"
    fill(bucket, segments, SHAPES[shape])
    _, second = footers_in(bucket)
    inner = second.relative_to(bucket)
    prefix = SHAPES[shape].get("key.prefix", "")
    target = others / str(inner).removeprefix(prefix)
    target.parent.mkdir(parents=True)
    shutil.move(second, target)
    with reading(bucket, SHAPES[shape]) as (tier, found, _):
        assert [tier.footers.fetch_totals(each) is not None for each in found] == [True, False]
    with reading(bucket, {**SHAPES[shape], "footer.path": str(others)}) as (tier, found, store):
        assert [tier.footers.fetch_totals(each) is not None for each in found] == [True, True]
        assert len(store.of("footer")) == 1
        assert [tier.footers.fetch_batches(each) is not None for each in found] == [True, True]
    target.unlink()
    with reading(bucket, {**SHAPES[shape], "footer.path": str(others)}) as (tier, found, _):
        assert [tier.footers.fetch_totals(each) is not None for each in found] == [True, False]
        assert tier.footers.passed_over == 0


@pytest.mark.parametrize("shape", ["aiven-zstd-aes", "kafka"])
def test_segments_by_metadata(segments: list[ClosedSegment], tmp_path: pathlib.Path, shape: str) -> None:
    """If this fails, a plan by metadata, which lists nothing, never finds footers, or asks where nobody wrote any."""
    keys = SHAPES[shape]
    fill(tmp_path, segments, keys)
    known = view_of([each.finished() for each in segments])
    for more, there in (({}, False), ({"footer.object.enabled": "true"}, True)):
        config = {"key.prefix": "", **keys, **more}
        with open_tier(str(tmp_path), layout=keys.get("layout", "aiven"), config=config, known=known) as tier:
            found = list(tier.iter_segments())
            assert [tier.footers.fetch_totals(each) is not None for each in found] == [there, there]
            assert [each.footer is not None for each in found] == [there, there]


def test_tasks_do_not_carry_it(segments: list[ClosedSegment], tmp_path: pathlib.Path) -> None:
    """If this fails, every task of a query is larger by what its planner alone needs."""
    for shape, keys in SHAPES.items():
        folder = tmp_path / shape
        fill(folder, segments, keys)
        with reading(folder, keys) as (_, (segment, _), _):
            assert segment.footer is not None
            narrowed = segment.narrowed(0, segment.size_bytes)
            assert narrowed == segment
            assert narrowed.footer is None
            assert pickle.loads(pickle.dumps(segment)).footer == segment.footer


def test_a_topic_that_is_none(segments: list[ClosedSegment], tmp_path: pathlib.Path) -> None:
    """If this fails, a folder that a stranger named leads to other keys of the place of footers."""
    fill(tmp_path, segments, {})
    with reading(tmp_path, {"footer.path": str(tmp_path)}) as (tier, (segment, _), _):
        metadata = segment.metadata
        place = dataclasses.replace(metadata.topic_id_partition, topic="..")
        hostile = dataclasses.replace(
            segment,
            metadata=dataclasses.replace(
                metadata,
                remote_log_segment_id=dataclasses.replace(metadata.remote_log_segment_id, topic_id_partition=place),
            ),
            footer=FooterPlace(-1, bytes(32)),
        )
        assert tier.footers.fetch_totals(hostile) is None
