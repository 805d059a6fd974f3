"""All decoders in one table, over the bytes that a real broker wrote; each as its own consumer reads a fetched batch.

The Java iterator walks the records and touches no payload; the others hand every key and value out. confluent-kafka has
no decoder that takes bytes, so it consumes the partition from the broker on loopback.
"""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from bench.logs import MIB, BenchLog
from bench.peers import rounds
from bench.side_by_side import Comparison, scaled
from bench.test_decode import decode, peak_of_arrow
from tests.support.peers import broker, install
from tierlog.records import decode as decode_all
from tierlog.records import scan

CODECS = ("none", "lz4", "zstd")
SHAPES = {1000: 192 * MIB, 100: 48 * MIB}
JAVA = "Kafka's Java iterator"
#: The bar of small records is against the best of these.
PYTHON_PEERS = ("aiokafka", "kafka-python", "confluent-kafka")


@pytest.fixture(scope="module")
def running_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[broker.Broker]:
    with broker.running(tmp_path_factory.mktemp("broker")) as running:
        yield running


def produced_log(running: broker.Broker, topic: str, codec: str, mean_size: int) -> pathlib.Path:
    """Makes a topic of one partition and gives its only segment."""
    size = scaled(SHAPES[mean_size])
    filling = ["-m", "bench.peers.produce", running.bootstrap, topic, codec, str(size), str(mean_size), "1", "1000000"]
    command = [str(install.python()), *filling]
    subprocess.run(command, check=True, env=install.environment(), cwd=install.ROOT, stderr=subprocess.DEVNULL)
    (log,) = (running.log_dir / f"{topic}-0").glob("*.log")
    return log


def loaded(path: pathlib.Path) -> BenchLog:
    """The log with the check that every reader has to come to, from its own columns."""
    data = path.read_bytes()
    table = scan(data)
    batch = decode_all(data, columns=["key", "value", "offset"])
    keys, values = (batch.column(name) for name in ("key", "value"))
    payload = sum(sum(len(v) for v in column.to_pylist() if v is not None) for column in (keys, values))
    check = payload + int(batch.column("offset").to_numpy().sum())
    return BenchLog(data[: table.end_position], table, batch.num_rows, check, payload, 0, 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("mean_size", [1000, 100], ids=["1000B", "100B"])
def test_all_decoders(
    codec: str, mean_size: int, running_broker: broker.Broker, compare: Callable[..., Comparison]
) -> None:
    topic = f"decode-{codec}-{mean_size}"
    path = produced_log(running_broker, topic, codec, mean_size)
    log = loaded(path)
    peak_of_arrow(log)
    with rounds.decoders(path, running_broker.bootstrap, topic) as peers:
        for name, peer in peers.items():
            for _ in range(3 if name == JAVA else 1):  # the JVM compiles meanwhile
                peer()
            assert peer.answer == (log.records, log.check), f"{name}: {peer.answer}"
        small = mean_size == 100
        bars = {name: 3.0 if small and name in PYTHON_PEERS else 1.0 for name in peers}
        compare(lambda: decode(log), peers, bars=bars, size_bytes=log.payload_bytes, records=log.records)
