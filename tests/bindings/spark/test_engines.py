"""Option by option: what the one engine reads, the other reads too."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.bindings.spark.conftest import Read
from tests.conftest import DATA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

TXN = DATA / "main-plain" / "objects"
BROKER = DATA / "main-plain/broker-after-stop/broker1"
TOPIC = {"subscribe": "fx-txn"}
EPOCHS = {"subscribe": "fx-epochs", "columns": "offset,leaderEpoch,segment,timestamp"}
OPTIONS: list[dict[str, str]] = [
    TOPIC | {"startingOffsets": '{"fx-txn":{"0":301}}'},
    TOPIC | {"endingOffsets": '{"fx-txn":{"0":1203}}', "maxBytesPerPartition": "10k"},
    TOPIC | {"startingOffsets": '{"fx-txn":{"0":-2}}', "endingOffsets": '{"fx-txn":{"0":-1}}'},
    TOPIC | {"startingOffsets": '{"fx-txn":{"0":700}}', "endingOffsets": '{"fx-txn":{"0":700}}'},
    TOPIC | {"startingTimestamp": "1"},
    TOPIC | {"minPartitions": "7", "includeHeaders": "true"},
    TOPIC | {"maxRecordsPerPartition": "50"},
    TOPIC | {"maxBytesPerPartition": "1", "endingOffsets": '{"fx-txn":{"0":120}}'},
    TOPIC | {"logStartOffset": '{"fx-txn":{"0":500}}'},
    TOPIC | {"verifyChecksums": "false", "failOnDataLoss": "false"},
    TOPIC | {"offHeapBytesPerTask": "24m", "maxPartitions": "2", "maxBytesPerPartition": "4k"},
    TOPIC | {"reportPartitioning": "true", "maxBytesPerPartition": "64k"},
    TOPIC | {"metadata": str(BROKER)},
    {"subscribePattern": "fx-(lso|epochs)", "columns": "topic,offset", "metadata": f"{BROKER}, {BROKER}"},
    EPOCHS,
    EPOCHS | {"maxBytesPerPartition": "12k"},
    {"assign": '{"fx-txn":[0],"fx-lso":[0]}', "columns": "segment,topic,partition,offset,headers"},
    {"subscribePattern": "fx-(lso|epochs)", "columns": "value,key,timestampType,timestamp"},
]


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


# Each isolation level with every other option: all of both are in the golden tests.
@pytest.mark.few(9)
@pytest.mark.parametrize(
    ("options", "isolation"),
    [*zip(OPTIONS, itertools.cycle(["read_uncommitted", "read_committed"]), strict=False)],
    ids=lambda given: " ".join(given) if isinstance(given, dict) else given,
)
def test_an_option(by_engine: dict[str, Read], options: dict[str, str], isolation: str) -> None:
    """A job whose rows change with the class path is worse than one that fails."""
    found = {engine: read(TXN, **options, **{"kafka.isolation.level": isolation}) for engine, read in by_engine.items()}
    assert found["jar"].schema == found["python"].schema
    assert rows(found["jar"]) == rows(found["python"])


def test_timestamps(by_engine: dict[str, Read]) -> None:
    """Each path asks the time index; one that starts a segment later loses the records between."""
    times = [row.ms for row in by_engine["jar"](TXN, **TOPIC).selectExpr("unix_millis(timestamp) AS ms").collect()]
    first, middle, last = min(times), sorted(times)[len(times) // 2], max(times)
    spans = [(first, last), (middle, last + 1), (middle, middle), (first, middle)]
    for start, end in spans:
        options = TOPIC | {"startingTimestamp": str(start), "endingTimestamp": str(end)}
        found = {engine: rows(read(TXN, **options)) for engine, read in by_engine.items()}
        assert found["jar"] == found["python"], (start, end)
    by_partition = {"startingOffsetsByTimestamp": f'{{"fx-txn":{{"0":{middle}}}}}'}
    found = {engine: rows(read(TXN, **TOPIC, **by_partition)) for engine, read in by_engine.items()}
    assert found["jar"] == found["python"]
    assert found["jar"]
