"""The oracle against vectors of Kafka's and Java's own: what is held against it must be able to rely on it."""

from __future__ import annotations

import pytest

from tests.records.vectors import VECTORS, vector
from tests.support import oracle as reference
from tests.support.oracle.batches import crc32c

T = 1_700_000_000_000
R1 = (100, T, b"k1", b"v1", (("h1", b"x"), ("hn", None)))
R2 = (101, T + 5, None, b"v2", ())


def rows(name: str, **options: object) -> list[tuple[object, ...]]:
    records, fault = reference.decode(vector(name), reference.DecodeOptions(**options))  # type: ignore[arg-type]
    assert fault is None
    return [(row.offset, row.timestamp, row.key, row.value, row.headers) for row in records]


def test_crc32c_is_castagnoli() -> None:
    """Every batch would be called corrupt otherwise."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@pytest.mark.parametrize("name", ["v2.none", "v2.gzip", "v2.snappy", "v2.lz4", "v2.zstd", "v2.txn"])
def test_magic_2(name: str) -> None:
    """Keys, values, headers and timestamps as Kafka put them in, whatever the codec."""
    assert rows(name) == [R1, R2]


def test_log_append_time_hides_the_records_own() -> None:
    """A user who filters by time must see the broker's clock where the topic says so."""
    records = reference.decode(vector("v2.logappend"))[0]
    assert [(row.timestamp, row.timestamp_type) for row in records] == [(T + 9999, 1)] * 2


def test_delete_horizon_is_the_base_of_timestamps() -> None:
    """Compacted topics would report times in the future otherwise."""
    assert rows("v2.deletehorizon") == [(100, T, b"k1", None, ()), (102, T + 5, b"k3", b"v3", ())]


def test_an_emptied_batch_keeps_its_range() -> None:
    """A reader must go on behind the last offset that the batch ever had."""
    assert rows("v2.emptyheader") == []
    (header,) = reference.scan(vector("v2.emptyheader")).headers
    assert (header.base_offset, header.last_offset, header.base_timestamp, header.max_timestamp) == (
        100,
        104,
        -1,
        T + 5,
    )
    behind = vector("v2.emptyheader") + vector("v2.none")
    error = reference.decode(behind)[1]
    assert error is not None
    assert error.fault == "BAD_OFFSET"


def test_sequences_count_on_from_the_batch() -> None:
    """Idempotent producers are told apart by them."""
    assert [row.sequence for row in reference.decode(vector("v2.txn"))[0]] == [17, 18]
    assert [row.sequence for row in reference.decode(vector("v2.none"))[0]] == [-1, -1]


@pytest.mark.parametrize("name", [name for name in VECTORS if name.startswith(("v0", "v1"))])
def test_magic_0_and_1(name: str) -> None:
    """Old messages alone and in wrappers give the same records; magic 0 has no timestamps."""
    times = (T, T + 5) if name.startswith("v1") else (-1, -1)
    assert rows(name) == [(100, times[0], b"k1", b"v1", ()), (101, times[1], None, b"v2", ())]


@pytest.mark.parametrize(("name", "kind"), [("endtxn.abort", 0), ("endtxn.commit", 1)])
def test_markers_are_no_data(name: str, kind: int) -> None:
    """A marker among a user's records would be a record that nobody produced."""
    assert rows(name) == []
    assert [row[2] for row in rows(name, control_records=True)] == [bytes([0, 0, 0, kind])]


# What JDK 17 makes of these bytes by new String(bytes, UTF_8), as UTF-8 again; see the oracle's docstring.
JAVA_UTF8 = {
    "41": "41",
    "c3a9": "c3a9",
    "ff": "efbfbd",
    "c080": "efbfbdefbfbd",
    "e282": "efbfbd",
    "e28241": "efbfbd41",
    "e08080": "efbfbdefbfbdefbfbd",
    "eda0": "efbfbd",
    "eda080": "efbfbd",
    "eda041": "efbfbd41",
    "eda0edbf": "efbfbdefbfbd",
    "eda0bdedb880": "efbfbdefbfbd",
    "ed9fbf": "ed9fbf",
    "f09f": "efbfbd",
    "f09f41": "efbfbd41",
    "f0808080": "efbfbdefbfbdefbfbdefbfbd",
    "f4908080": "efbfbdefbfbdefbfbdefbfbd",
    "f5808080": "efbfbdefbfbdefbfbdefbfbd",
    "f09f9880": "f09f9880",
}


@pytest.mark.parametrize(("given", "text"), JAVA_UTF8.items())
def test_header_keys_are_decoded_as_in_java(given: str, text: str) -> None:
    """A header that Spark's Kafka source finds by its name must be found here by the same name."""
    assert reference.decode_java_utf8(bytes.fromhex(given)).encode().hex() == text
