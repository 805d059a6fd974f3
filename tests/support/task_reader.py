"""The jar's reader in a JVM of its own, driven by hand-made plans, and the same rows by the Python path."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa

from tests.support.checkout import ROOT
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.scan.reading.read import segment_label
from tierlog.scan.scan_range import ScanRange

JAR = ROOT / "bindings/spark/pyspark_tierlog/jars/tierlog-spark.jar"
HARNESS = ROOT / "bindings/spark/java/src/test/java/io/tierlog/engine/Harness.java"

#: What Spark's own launcher gives every JVM of Spark on 17 and newer, as far as it is needed here.
OPENED = "--add-opens=java.base/java.nio=ALL-UNNAMED"


class Unavailable(Exception):
    """What is missing to run the jar's reader."""


@dataclass(frozen=True)
class Store:
    """Where the segments of a plan lie."""

    url: str
    kind: str = "local"
    options: tuple[tuple[str, str], ...] = ()
    keys: tuple[tuple[str, str], ...] = ()

    def described(self) -> dict[str, Any]:
        return {"kind": self.kind, "url": self.url, "options": dict(self.options), "keys": dict(self.keys)}


def jar() -> pathlib.Path:
    """The jar to test: TIERLOG_JAR, or the one that was built. Raises Unavailable."""
    found = pathlib.Path(os.environ.get("TIERLOG_JAR") or JAR)
    if not found.is_file():
        raise Unavailable(f"{found} is not built: make jar")
    return found


def spark_jars() -> pathlib.Path:
    import pyspark

    return pathlib.Path(pyspark.__file__).parent / "jars"


class TaskReaderProcess:
    """One JVM that reads one task after another; a context manager.

    Args:
        folder: For what is compiled and for rows.

    Environment:
        TIERLOG_JAR: Another jar, as one whose library is built with a sanitizer.
        TIERLOG_JVM_OPTIONS: More for the JVM, as ``-Xcheck:jni``.
        TIERLOG_JVM_PRELOAD: Libraries to load before all others, as the sanitizer's.

    Raises:
        Unavailable: no jar, or no JDK.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        home = os.environ.get("JAVA_HOME")
        java, javac = (f"{home}/bin/{name}" if home else shutil.which(name) or "" for name in ("java", "javac"))
        if not (os.access(java, os.X_OK) and os.access(javac, os.X_OK)):
            raise Unavailable("no JDK: JAVA_HOME has no javac")
        path = f"{jar()}:{spark_jars()}/*"
        classes = folder / "classes"
        subprocess.run([javac, "--release", "17", "-cp", path, "-d", classes, HARNESS], check=True)
        options = os.environ.get("TIERLOG_JVM_OPTIONS", "").split()
        preload = os.environ.get("TIERLOG_JVM_PRELOAD")
        self._rows = folder / "rows"
        self._process = subprocess.Popen(
            [java, "-Xmx512m", OPENED, *options, "-cp", f"{classes}:{path}", "io.tierlog.engine.Harness"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | ({"LD_PRELOAD": preload} if preload else {}),
            text=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> int:
        """Ends the JVM; its exit code."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return self._process.wait(30)

    def read(
        self,
        ranges: Iterable[ScanRange],
        store: Store,
        columns: Sequence[str],
        *,
        verify_checksums: bool = True,
        **settings: object,
    ) -> Answer:
        """One task."""
        request = plan_of(ranges, store) | {
            "columns": list(columns),
            "verifyChecksums": verify_checksums,
            "out": str(self._rows),
            **settings,
        }
        told = self.ask(request)
        return Answer(self._rows.read_text().splitlines(), told)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the harness answers."""
        _pipe(self._process.stdin).write(json.dumps(request) + "\n")
        _pipe(self._process.stdin).flush()
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise AssertionError(f"the JVM is gone with exit code {self._process.wait(30)}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


@dataclass(frozen=True)
class Answer:
    """Rows as text, one each, and what else was told."""

    rows: list[str]
    told: dict[str, Any]

    @property
    def error(self) -> tuple[str, str] | None:
        """Class and message."""
        return (self.told["kind"], self.told["error"]) if "error" in self.told else None


# ---- plans -----------------------------------------------------------------------------------------------------------


def plan_of(ranges: Iterable[ScanRange], store: Store) -> dict[str, Any]:
    """A task as the harness takes it: the values of io.tierlog.plan."""
    segments, planned, fail = [], [], True
    for number, scan_range in enumerate(ranges):
        segments.append(_segment(scan_range.segment))
        planned.append(_range(scan_range, number))
        fail = scan_range.fail_on_data_loss
    return {"stores": [store.described()], "segments": segments, "ranges": planned, "failOnDataLoss": fail}


def _segment(segment: StoredSegment) -> dict[str, Any]:
    index, encryption = segment.chunk_index, segment.encryption
    told: dict[str, Any] = {
        "topic": segment.topic_id_partition.topic,
        "partition": segment.topic_id_partition.partition,
        "label": segment_label(segment),
        "name": segment.name,
        "key": segment.log.key,
        "logPosition": segment.log.position,
        "sizeBytes": segment.size_bytes,
        "compressed": segment.compression,
        "originalChunkSize": index.original_chunk_size if segment.transformed and index else 0,
        "lastModifiedMs": segment.last_modified_ms,
        "maxTimestampMs": segment.metadata.max_timestamp_ms,
    }
    if encryption is not None:
        told |= {"keyId": encryption.key_id, "wrappedKey": _text(encryption.wrapped_key), "aad": _text(encryption.aad)}
    return told


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _range(scan_range: ScanRange, number: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        "segment": number,
        "startPosition": scan_range.start_position,
        "endPosition": scan_range.end_position,
        "fromOffset": scan_range.from_offset,
        "toOffsetExclusive": scan_range.to_offset_exclusive,
        "leastOffset": scan_range.least_offset,
        "greatestOffset": scan_range.greatest_offset,
        "fromTimestampMs": scan_range.from_timestamp_ms,
        "toTimestampExclusiveMs": scan_range.to_timestamp_exclusive_ms,
        "aborted": None if scan_range.aborted is None else _text(scan_range.aborted),
    }
    segment, index = scan_range.segment, scan_range.segment.chunk_index
    if segment.transformed and index is not None and scan_range.size_bytes:
        views = index.views(scan_range.start_position, scan_range.end_position)
        told["chunks"] = {
            "firstOriginalPosition": int(views[0]["chunk"]) * index.original_chunk_size,
            "firstTransformedPosition": int(views[0]["transformed_position"]),
            "transformedSizes": views["transformed_size"].tolist(),
            "lastOriginalSize": int(views[-1]["original_size"]),
        }
    return told


# ---- rows of the Python path -----------------------------------------------------------------------------------------


def rows_as_text(batches: Iterable[pa.RecordBatch]) -> list[str]:
    """Rows as the harness writes them."""
    return [
        "\t".join(_field(value, name) for name, value in row.items())
        for batch in batches
        for row in _untimed(batch).to_pylist()
    ]


def _untimed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Timestamps as numbers: Python's own types do not reach as far."""
    arrays = [a.view(pa.int64()) if pa.types.is_timestamp(a.type) else a for a in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _field(value: Any, name: str) -> str:
    if value is None:
        return "null"
    if name == "headers":
        pairs = ((h["key"].encode().hex(), "null" if h["value"] is None else h["value"].hex()) for h in value)
        return "[" + "".join(f"{key}={content};" for key, content in pairs) + "]"
    return value.hex() if isinstance(value, bytes) else str(value)
