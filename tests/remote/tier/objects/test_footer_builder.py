"""The footer of real logs, held against their records."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.oracle import Record, decode
from tests.support.oracle import scan as oracle_scan
from tests.support.segments import sound_log
from tierlog.records.batch_runs import BatchRuns
from tierlog.remote.tier.objects import footer_builder
from tierlog.remote.tier.objects.footer import SegmentFooter
from tierlog.remote.tier.objects.footer_builder import FooterBuilder


def built(data: bytes, cuts: list[int] | None = None) -> SegmentFooter | None:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or ())})
    builder = FooterBuilder()
    for run in BatchRuns([data[start:end] for start, end in itertools.pairwise(edges)]):
        builder.add(run)
    return builder.finish()


def logs_of(data: pathlib.Path) -> list[pathlib.Path]:
    found = [path for path in sorted(data.rglob("*.log")) if path.parent.parent.name in ("broker1", "compacted")]
    assert len(found) > 10
    return found


def test_real_logs(data: pathlib.Path) -> None:
    """If this fails, a count, a least or a greatest of what Kafka wrote is another one with a footer than without."""
    kinds = set()
    for path in logs_of(data):
        content = path.read_bytes()
        footer = built(content)
        assert footer is not None
        assert footer.batches is not None
        records, fault = decode(content)
        assert fault is None
        headers = oracle_scan(content).headers
        kinds |= {header.attributes for header in headers}
        totals, batches = footer.totals, footer.batches
        assert totals == batches.totals()
        assert (totals.batches, footer.end_position, totals.records) == (len(headers), len(content), len(records))
        assert batches.position.tolist() == [header.position for header in headers]
        assert batches.attributes.tolist() == [header.attributes for header in headers]
        for number, header in enumerate(headers):
            own = [record for record in records if record.batch_position == header.position]
            if own and batches.times_known[number]:
                assert batches.least_timestamp[number] == min(record.timestamp for record in own)
                assert batches.greatest_timestamp[number] == max(record.timestamp for record in own)
        compare(footer, records)
    assert {0, 4, 16, 48} <= kinds  # plain, compressed, transactional, markers


def compare(footer: SegmentFooter, records: list[Record]) -> None:
    totals = footer.totals
    if not records:
        assert (totals.least_offset, totals.greatest_offset, totals.least_timestamp_ms) == (None, None, None)
        return
    for known, value in (
        (totals.least_offset, records[0].offset),
        (totals.greatest_offset, records[-1].offset),
        (totals.least_timestamp_ms, min(record.timestamp for record in records)),
        (totals.greatest_timestamp_ms, max(record.timestamp for record in records)),
    ):
        assert known in (None, value)


LOG = sound_log(30, base_offset=50, codecs=("none", "zstd", "lz4"))
WHOLE = built(LOG)


@given(st.lists(st.integers(0, 200_000), max_size=30))
def test_any_cut_gives_the_same_footer(cuts: list[int]) -> None:
    """If this fails, a footer depends on how the bytes came."""
    assert WHOLE is not None
    assert WHOLE.batches is not None
    found = built(LOG, cuts)
    assert found is not None
    assert found.batches is not None
    assert found.totals == WHOLE.totals
    for field in dataclasses.fields(WHOLE.batches):
        assert getattr(found.batches, field.name).tolist() == getattr(WHOLE.batches, field.name).tolist()


def test_too_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a segment of very small batches takes the memory of the broker that copies it."""
    assert WHOLE is not None
    for most, has_table in ((30, True), (29, False), (1, False)):
        monkeypatch.setattr(footer_builder, "BATCHES_MAX", most)
        found = built(LOG, [100 * n for n in range(500)])
        assert found is not None
        assert (found.totals, found.end_position) == (WHOLE.totals, len(LOG))
        assert (found.batches is not None) == has_table


def test_old_formats_have_none(data: pathlib.Path) -> None:
    """If this fails, a wrapper of old messages counts as one record."""
    for name in ("v1-gzip", "v0-none", "mixed-v0-v1-v2"):
        assert built((data / "record-v0-v1" / f"{name}.log").read_bytes()) is None


def test_a_header_that_cannot_be_has_none() -> None:
    """If this fails, a producer's wrong header gives a count that reading would refuse."""
    log = bytearray(LOG)
    log[57:61] = (99).to_bytes(4, "big")
    assert built(bytes(log)) is None


def test_no_batches() -> None:
    """If this fails, an empty log ends a copy."""
    found = built(b"")
    assert found is not None
    assert (found.totals.batches, found.totals.records, found.end_position) == (0, 0, 0)
