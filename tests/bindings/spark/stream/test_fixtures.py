"""Streams over what real brokers tiered: the rows of a real consumer, by sessions classic and of Spark Connect."""

from __future__ import annotations

import importlib.util
import json
import pathlib
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from tests.bindings.spark.conftest import ENGINES, in_milliseconds
from tests.bindings.spark.jar.test_packaging import lines_of
from tests.bindings.spark.test_source import options_of
from tests.conftest import DATA
from tests.support.golden import ROW_COLUMNS, Case, answers, rows_of, tiered_topics
from tests.support.servers import free_port
from tests.support.spark_streams import Stream, parts_of, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: Transactions; two partitions that are compressed and sealed; the layout of Kafka's own manager.
NAMES = ("main-plain/fx-txn", "zstd-aes/fx-zstd-a-json", "local-tiered/fx-local-txn")
CASES = sorted((case for case in tiered_topics(DATA) if str(case) in NAMES), key=lambda case: NAMES.index(str(case)))
ISOLATION = "read_committed"
#: Fewer offsets than the first half of each has.
LIMIT = "200"
#: A session for each run, which goes on from the checkpoint of the one before it.
CONNECT = """
import json, os
from pyspark.sql.connect.session import SparkSession as Remote
from tests.support.spark_streams import Stream, run

port = sys.argv[1]
server = session(**{"spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
                    "spark.connect.grpc.binding.port": port})
for given in json.loads(sys.argv[2]):
    stream = Stream(**given)
    for part in stream.parts:
        spark = Remote.builder.remote(f"sc://127.0.0.1:{port}").create()
        if stream.options["engine"] == "jar":
            pyspark_tierlog.enable(spark)
        try:
            print(json.dumps(run(spark, stream, part)), flush=True)
        except Exception as error:
            print(json.dumps(str(error)), flush=True)
        spark.client.release_session()
os._exit(0)  # the server would wait for its sessions
"""


def stream_of(case: Case, engine: str, work: pathlib.Path, *, is_limited: bool) -> Stream:
    work.mkdir()
    options = options_of(case.run) | {"path": str(work / "tier"), "engine": engine, "subscribe": case.topic}
    options |= {"kafka.isolation.level": ISOLATION, "columns": ",".join(ROW_COLUMNS), "startingOffsets": "earliest"}
    limit = {"maxOffsetsPerTrigger": LIMIT} if is_limited else {}
    return Stream(options | limit, parts_of(case.objects, work), str(work))


def knows_limits(spark: SparkSession, engine: str) -> bool:
    return engine == "jar" or spark.version >= "4.2"


def check(spark: SparkSession, stream: Stream, case: Case, batches: list[list[int]]) -> None:
    """Fail unless the runs have written each record once, by as many batches as the limit makes of them."""
    found = spark.read.parquet(stream.out).select(*ROW_COLUMNS).toArrow()
    assert sorted(rows_of(in_milliseconds(found))) == answers(case, ISOLATION)
    assert batches[2] == []
    if "maxOffsetsPerTrigger" in stream.options:
        assert len(batches[0]) > 1
        assert max(batches[0] + batches[1]) <= int(LIMIT)
    else:
        assert len(batches[0]) == 1
        assert len(batches[1]) <= 1  # none where a transaction is open from the first part on


@pytest.mark.few(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_tier_that_grows(spark: SparkSession, engine: str, case: Case, tmp_path: pathlib.Path) -> None:
    """If this fails, a query has records twice, lacks some, or has them otherwise than a consumer, where it went on."""
    stream = stream_of(case, engine, tmp_path / "query", is_limited=knows_limits(spark, engine))
    check(spark, stream, case, [run(spark, stream, part) for part in stream.parts])


@pytest.mark.more
def test_a_tier_that_grows_by_spark_connect(spark: SparkSession, jar: str | None, tmp_path: pathlib.Path) -> None:
    """If this fails, a query of Spark Connect has other records, or loses its jar between two sessions."""
    if importlib.util.find_spec("grpc") is None or importlib.util.find_spec("grpc_status") is None:
        pytest.skip("pyspark[connect] is not installed")
    case, engines = CASES[0], ENGINES if jar is not None else ENGINES[:1]
    streams = [stream_of(case, engine, tmp_path / engine, is_limited=knows_limits(spark, engine)) for engine in engines]
    if not knows_limits(spark, "python"):
        streams.append(stream_of(case, "python", tmp_path / "refused", is_limited=True))
    given = json.dumps([asdict(stream) for stream in streams])
    told = [json.loads(line) for line in lines_of(CONNECT, str(free_port()), given)]
    for stream in streams[: len(engines)]:
        batches, told = told[:3], told[3:]
        assert all(isinstance(each, list) for each in batches), batches
        check(spark, stream, case, batches)
    assert all("need the jar or Spark 4.2" in text for text in told)
