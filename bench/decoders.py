"""All decoders over the bytes of a real broker, each as its own consumer reads a fetched batch.

    python -m bench.decoders [--scale 0.05] [--rounds 5] [--codecs none,lz4,zstd]

One partition, batches of up to 1 MB; speeds are of keys and values. Kafka's Java iterator walks the records and touches
no payload; the others hand every key and value out. confluent-kafka has no decoder that takes bytes, so it consumes the
partition from the broker on loopback. All come to the same number of records and the same sum of offsets and sizes.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from functools import partial

from bench.data import BenchLog
from bench.harness import MIB, PEERS, Side, Suite, arguments, equal, in_turn, started, work_folder
from bench.micro import checked, decode
from bench.topics import fill
from tests.support.peers import broker, install
from tierlog.records import decode as decode_all
from tierlog.records import scan

#: Mean size of a value to the bytes of a log; the bar of small records is against the best of Python's clients.
SHAPES = {1000: 192 * MIB, 100: 48 * MIB}
JAVA = "Kafka's Java iterator"


def loaded(path: pathlib.Path) -> BenchLog:
    """The log with the check that every reader has to come to, from its own columns."""
    data = path.read_bytes()
    table = scan(data)
    batch = decode_all(data, columns=["key", "value", "offset"])
    columns = [batch.column(name).to_pylist() for name in ("key", "value")]
    payload = sum(len(value) for column in columns for value in column if value is not None)
    check = payload + int(batch.column("offset").to_numpy().sum())
    return BenchLog(data[: table.end_position], table, batch.num_rows, check, payload, 0, 0)


@contextlib.contextmanager
def peers(log: pathlib.Path, bootstrap: str, topic: str) -> Iterator[dict[str, Side]]:
    """All that decode: the log file, or the topic of the broker that wrote it."""
    java = [install.java(), "-Xmx2g", "-cp", install.class_path("kafka"), str(PEERS / "RecordIterator.java"), str(log)]
    asked = {"aiokafka": [str(log)], "kafka-python": [str(log)], "confluent-kafka": [bootstrap, topic]}
    with contextlib.ExitStack() as stack:
        made = {JAVA: stack.enter_context(started(JAVA, java))}
        for name, words in asked.items():
            command = [str(install.python()), "-m", "bench.peers.decode_peers", name, *words]
            made[name] = stack.enter_context(started(name, command, environment=install.environment()))
        yield made


def main() -> None:
    chosen = arguments(__doc__, codecs="none,lz4,zstd")
    suite = Suite("decoders", install.versions())
    with work_folder() as folder, broker.running(folder / "broker") as running:
        for size, total in SHAPES.items():
            for codec in chosen.codecs.split(","):
                topic = f"decode-{codec}-{size}"
                total_bytes = max(MIB, int(total * chosen.scale))
                fill(running, topic, codec, total_bytes, value_bytes=size, partitions=1)
                (path,) = (running.log_dir / f"{topic}-0").glob("*.log")
                log = loaded(path)
                checked(log)
                with peers(path, running.bootstrap, topic) as theirs:
                    answers = [theirs[JAVA]() for _ in range(3)][-1:]  # the JVM compiles meanwhile
                    answers += [side() for name, side in theirs.items() if name != JAVA]
                    told = {name: [each["records"], each["check"]] for name, each in zip(theirs, answers, strict=True)}
                    equal(topic, {**told, "the log": [log.records, log.check]})
                    found = in_turn({**theirs, "ours": partial(decode, log)}, chosen.rounds)
                for name in theirs:
                    bar = 3.0 if size == 100 and name != JAVA else 1.0
                    what = f"{size} B, {codec}, {log.records} records"
                    suite.speed(what, found, name, amount=log.payload_bytes, unit="MB/s", bar=bar)
    suite.save()


if __name__ == "__main__":
    main()
