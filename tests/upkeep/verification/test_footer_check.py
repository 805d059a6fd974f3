"""``tierlog verify`` compares footers with what they are of."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest

from tests.support.footers import DAMAGE, fill, footers_in, indexed_copy
from tests.support.golden import config_of
from tests.support.manager_configs import KEYS, ZSTD
from tests.support.segments import make_segment, sound_log
from tierlog.remote.tier import open_tier
from tierlog.remote.tier.objects.footer import FooterBatches, SegmentFooter, encode_footer
from tierlog.remote.tier.tier_footers import unit_sealer
from tierlog.upkeep import Severity, verify

RUNS = ("main-plain", "zstd-aes", "custom-meta")


@pytest.mark.parametrize("run", RUNS)
def test_sound_footers(data: pathlib.Path, tmp_path: pathlib.Path, run: str) -> None:
    """If this fails, verify cries wolf over buckets that somebody indexed."""
    bucket = indexed_copy(data / run, tmp_path / "bucket")
    result = verify(bucket, config=config_of(data / run))
    assert (result.faults, result.errors) == (0, 0), result.findings
    plain = verify(data / run / "objects", config=config_of(data / run))
    assert (result.records, result.notes) == (plain.records, plain.notes)


@pytest.mark.parametrize("damage", [how for how in DAMAGE if how not in ("none", "absent in half")])
def test_footers_that_are_passed_over(data: pathlib.Path, tmp_path: pathlib.Path, damage: str) -> None:
    """If this fails, nobody hears that a bucket's footers are of no use."""
    bucket = indexed_copy(data / "zstd-aes", tmp_path / "bucket")
    DAMAGE[damage](footers_in(bucket))
    result = verify(bucket, config=config_of(data / "zstd-aes"))
    assert (result.faults > 3, result.errors) == (True, 0)
    assert all(finding.where.endswith(".footer") for finding in result.findings if finding.severity is Severity.FAULT)


def forged(bucket: pathlib.Path, keys: dict[str, str], **columns: Any) -> None:
    """A footer whose parts fit each other, its segment and its key, and whose batches are not those of the log."""
    with open_tier(str(bucket), config={"key.prefix": "", **keys}) as tier:
        (segment,) = tier.iter_segments()
        found = tier.footers.read(segment)
        assert found is not None
        assert segment.footer is not None
        batches = found[1]
        assert batches is not None
        changed = dataclasses.replace(batches, **{name: change(batches) for name, change in columns.items()})
        footer = SegmentFooter(changed.totals(), int(changed.greatest_timestamp[0]), changed.end_position, changed)
        seal = unit_sealer(tier.key_ring, segment.encryption, tier.machine.rng)
        data = encode_footer(footer, tier.footers.binding(segment, segment.footer), seal=seal)
    (path,) = footers_in(bucket)
    path.write_bytes(data)


def plus(name: str, row: int, more: int) -> Any:
    def change(batches: FooterBatches) -> np.ndarray[Any, Any]:
        column: np.ndarray[Any, Any] = getattr(batches, name).copy()
        column[row] += more
        return column

    return change


def moved(batches: FooterBatches) -> np.ndarray[Any, Any]:
    sizes = batches.size_bytes.copy()
    sizes[3], sizes[4] = sizes[3] + 5, sizes[4] - 5
    return sizes


@pytest.mark.parametrize("keys", [{}, ZSTD | KEYS], ids=["plain", "zstd-aes"])
@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (
            {"record_count": plus("record_count", 7, -1)},
            "record count of a batch is not the log's: expected 2, found 1",
        ),
        ({"greatest_timestamp": plus("greatest_timestamp", 7, 5)}, "greatest timestamp of a batch"),
        ({"least_timestamp": plus("least_timestamp", 7, -5)}, "least timestamp of a batch"),
        ({"attributes": plus("attributes", 7, 16)}, "attributes of a batch"),
        ({"size_bytes": moved}, "position of a batch"),
    ],
)
def test_a_footer_of_other_batches(
    tmp_path: pathlib.Path, keys: dict[str, str], columns: dict[str, Any], told: str
) -> None:
    """If this fails, a footer that counts wrongly is found by nobody."""
    segment = make_segment(sound_log()).closed_in(tmp_path / "log")
    fill(tmp_path / "bucket", [segment], keys)
    forged(tmp_path / "bucket", keys, **columns)
    result = verify(tmp_path / "bucket", config={"key.prefix": "", **keys})
    (finding,) = [each for each in result.findings if each.severity is not Severity.NOTE]
    assert (finding.kind, finding.severity) == ("FOOTER", Severity.FAULT)
    assert told in str(finding)
    assert finding.position > 0
    assert finding.topic == "orders"


def test_a_damaged_log_is_the_only_fault(tmp_path: pathlib.Path) -> None:
    """If this fails, one rotten batch is told as many faults of a footer that is right."""
    segment = make_segment(sound_log()).closed_in(tmp_path / "log")
    fill(tmp_path / "bucket", [segment], {})
    (log,) = (tmp_path / "bucket").rglob("*.log")
    content = bytearray(log.read_bytes())
    content[-20] ^= 1
    log.write_bytes(content)
    result = verify(tmp_path / "bucket")
    assert [finding.kind for finding in result.findings if finding.severity is Severity.FAULT] == ["BAD_CRC"]


def test_without_a_table(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, the totals of a segment of very many batches are compared with nothing."""
    from tierlog.remote.tier.objects import footer, footer_builder

    segment = make_segment(sound_log()).closed_in(tmp_path / "log")
    for module in (footer, footer_builder):
        monkeypatch.setattr(module, "BATCHES_MAX", 39)
    fill(tmp_path / "bucket", [segment], {})
    assert verify(tmp_path / "bucket").faults == 0
    with open_tier(str(tmp_path / "bucket")) as tier:
        (stored,) = tier.iter_segments()
        found = tier.footers.read(stored)
        assert found is not None
        assert stored.footer is not None
        totals = dataclasses.replace(found[0].totals, records=79)
        wrong = SegmentFooter(totals, found[0].first_timestamp_ms, stored.size_bytes, None)
        content = encode_footer(wrong, tier.footers.binding(stored, stored.footer))
    footers_in(tmp_path / "bucket")[0].write_bytes(content)
    (finding,) = [each for each in verify(tmp_path / "bucket").findings if each.severity is Severity.FAULT]
    assert "the number of records is not the log's: expected 80, found 79" in str(finding)
