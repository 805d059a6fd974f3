"""One pass over a log names each fault with its position, and no fault where Kafka has none."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.support.batches import Batch, encode
from tierlog.log.checks.findings import Severity
from tierlog.upkeep.verification.log_walk import LogWalk

# What Kafka's classes read and a verifier must still name: offsets that contradict each other, a lost tail.
STRICTER_THAN_KAFKA = {
    "01-truncated-tail.log": "TRUNCATED",
    "02-truncated-header-7.log": "TRUNCATED",
    "03-truncated-header-30.log": "TRUNCATED",
    "06-batch-length-intmax.log": "OVER_LIMIT",
    "07-magic-3.log": "BAD_MAGIC",
    "07-magic-127.log": "BAD_MAGIC",
    "22-last-offset-delta-negative.log": "BAD_OFFSET",
    "23-last-offset-delta-small.log": "BAD_OFFSET",
    "24-offset-deltas-decreasing.log": "BAD_OFFSET",
    "25-batches-out-of-order.log": "BAD_OFFSET",
    "26-base-offset-negative.log": "BAD_OFFSET",
    "31-control-key-short.log": "BAD_CONTROL",
}


def walked(data: bytes, *, live: bool = False, window_bytes: int = 1 << 20) -> LogWalk:
    windows = [data[start : start + window_bytes] for start in range(0, len(data), window_bytes)]
    walk = LogWalk(windows, "a.log", live=live)
    for _ in walk:
        pass
    return walk


def test_what_kafka_refuses_is_named(data: pathlib.Path) -> None:
    """Otherwise verify calls a segment sound that no consumer can read."""
    verdicts = json.loads((data / "bad/kafka-verdict.json").read_text())
    logs = sorted((data / "bad/log").glob("*.log"))
    assert len(logs) > 40
    for path in logs:
        said = json.dumps(verdicts[path.name])
        kinds = [finding.kind for finding in walked(path.read_bytes()).findings]
        if path.name in STRICTER_THAN_KAFKA:
            assert kinds[:1] == [STRICTER_THAN_KAFKA[path.name]], path.name
        else:
            assert bool(kinds) == ("Exception" in said or "Error" in said), (path.name, kinds)


@pytest.mark.parametrize("window_bytes", [1, 61, 4096])
def test_faults_do_not_depend_on_the_windows(data: pathlib.Path, window_bytes: int) -> None:
    """Otherwise a fault is found or missed depending on the store."""
    content = (data / "bad/log/04-flipped-byte.log").read_bytes()
    whole, split = walked(content), walked(content, window_bytes=window_bytes)
    assert split.findings == whole.findings
    assert (split.batches, split.records, split.end_position) == (4, 61, len(content))


def test_a_fault_names_position_expected_and_found(data: pathlib.Path) -> None:
    """Otherwise an operator cannot look at the bytes."""
    (finding,) = walked((data / "bad/log/04-flipped-byte.log").read_bytes()).findings
    assert (finding.severity, finding.kind, finding.where) == (Severity.FAULT, "BAD_CRC", "a.log")
    assert (finding.position, finding.offset) == (16230, 56)
    assert (finding.expected, finding.found) == ("0x2a43b9d8", "0xd874cf74")


LOG = b"".join(encode(Batch(offset, (b"v" * 40,) * 3)) for offset in range(0, 30, 3))


def test_the_tail_of_an_active_segment_is_a_note() -> None:
    """Otherwise every verify of a running broker ends with faults."""
    torn = walked(LOG[:-10], live=True)
    assert [(f.severity, f.kind) for f in torn.findings] == [(Severity.NOTE, "TORN_TAIL")]
    zeros = walked(LOG + bytes(5000), live=True, window_bytes=777)
    assert [(f.severity, f.kind, f.position) for f in zeros.findings] == [(Severity.NOTE, "PREALLOCATED", len(LOG))]
    assert torn.complete
    assert zeros.complete


def test_garbage_in_an_active_segment_is_a_fault() -> None:
    """Otherwise damage in the middle of a log passes for a torn tail."""
    damaged = walked(LOG[:150] + b"\xff" * 10 + LOG[160:], live=True)
    assert [f.severity for f in damaged.findings] == [Severity.FAULT]
    nonzero = walked(LOG + bytes(500) + b"x", live=True)
    assert [f.severity for f in nonzero.findings] == [Severity.FAULT]
    assert not nonzero.complete


def test_many_faults_end_the_walk() -> None:
    """Otherwise a hostile segment of a million bad batches makes a million lines."""
    batches = [bytearray(encode(Batch(offset))) for offset in range(300)]
    for batch in batches:
        batch[-1] ^= 1
    walk = walked(b"".join(batches), window_bytes=1000)
    assert len(walk.findings) == 101
    assert walk.findings[-1].kind == "NOT_CHECKED"
    assert not walk.complete


def test_markers_are_told(data: pathlib.Path) -> None:
    """Otherwise the transaction index is compared with nothing."""
    log = data / "main-plain/local-before/broker1/fx-txn-0/00000000000000000000.log"
    kinds = [kind for run in LogWalk([log.read_bytes()], "a.log") for kind in run.markers.values()]
    assert set(kinds) == {0, 1}
