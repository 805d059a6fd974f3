"""No checksum of Kafka's covers a batch's base offset, length and epoch: each bit flipped, through both engines."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import pytest

from tests.bindings.spark.conftest import Read, offsets
from tests.support.task_reader import Store, TaskReaderProcess, plan_of
from tests.support.unchecked_bits import EPOCH_BITS, UNCHECKED_BITS, WHERE, Flipped
from tierlog import open_tier
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.scan_request import RecordFilter, ScanRequest, TopicSelection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDERS = TopicSelection.of_names(["orders"])
#: Kinds of requests: all of it; from and to an offset within; up to a time, which headers alone decide; by batch.
REQUESTS = {
    "whole": ScanRequest(ORDERS),
    "bounds": ScanRequest(ORDERS, starting_offsets={"orders": {0: 52}}, ending_offsets={"orders": {0: 68}}),
    "time": ScanRequest(
        ORDERS, record_filter=RecordFilter(end_timestamp_exclusive_ms=1_700_000_000_000 + 1000 * 60 + 2)
    ),
    "by batch": ScanRequest(ORDERS, max_bytes_per_range=1),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("where", WHERE)
def test_each_bit_through_the_jar(jvm: TaskReaderProcess, tmp_path: pathlib.Path, where: str, kind: str) -> None:
    """A bit that rots would take records out of an answer, or give them twice, and nobody would know."""
    flipped = Flipped(tmp_path)
    store = Store(str(tmp_path.resolve()))
    with open_tier(str(tmp_path)) as tier:
        ranges = plan_scan(tier, REQUESTS[kind]).ranges

    def rows() -> list[str] | str:
        answer = jvm.read(ranges, store, ("offset", "value"))
        return answer.error[0] if answer.error else answer.rows

    def summed() -> tuple[object, ...] | str:
        told = jvm.ask(plan_of(ranges, store) | {"summary": ["offsets"], "verifyChecksums": True})
        return told["kind"] if "error" in told else (told["count"], told["leastOffset"], told["greatestOffset"])

    for ask in (rows, summed):
        truth, seen = ask(), 0
        assert not isinstance(truth, str)
        for bit in flipped.each(flipped.number(where)):
            found = ask()
            if isinstance(found, str):
                assert found in ("CorruptRecordError", "SizeLimitError")
                assert bit not in EPOCH_BITS
                seen += 1
            else:
                assert found == truth, (ask.__name__, bit)
        assert seen == len(UNCHECKED_BITS) - len(EPOCH_BITS) or kind in ("bounds", "time")
        assert seen > 50 or kind != "whole"


def count(frame: DataFrame) -> int:
    return frame.count()


#: Those of ``make test``; the others are of ``make test-more``, or slow.
AT_ONCE = ((58, "first"), (127, "last"))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("bit", "where"),
    [
        pytest.param(bit, where, marks=() if (bit, where) in AT_ONCE else marks)
        for bits, marks in (((58, 127), pytest.mark.more), ((0, 62, 90), pytest.mark.slow))
        for bit in bits
        for where in WHERE
    ],
)
def test_some_bits_through_spark(by_engine: dict[str, Read], tmp_path: pathlib.Path, where: str, bit: int) -> None:
    """The whole way through both engines: rows, and the count that headers answer."""
    flipped = Flipped(tmp_path)

    for _ in flipped.each(flipped.number(where), [bit]):
        for engine, read in by_engine.items():
            for ask, truth in ((offsets, list(range(120))), (count, 120)):
                if bit in EPOCH_BITS:
                    assert ask(read(tmp_path, subscribe="orders")) == truth, engine
                else:
                    with pytest.raises(Exception, match=r"CorruptRecordError|SizeLimitError"):
                        ask(read(tmp_path, subscribe="orders"))
