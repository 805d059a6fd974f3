"""The golden data as questions and answers: buckets, the configuration they need, what a real consumer got from them.

The restriction to what a bucket alone can answer for is that of the black-box checks: offsets that are tiered, and for
read_committed those below the first transaction that the tier does not see the end of.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import pathlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

ISOLATIONS = ("read_uncommitted", "read_committed")
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}

#: partition, offset, timestamp ms, timestamp type, leader epoch, key, value (digest above 4096 bytes), headers
Row = tuple[int, int, int, str, int, bytes | None, bytes | str | None, tuple[tuple[str, bytes | None], ...]]


@dataclass(frozen=True)
class Case:
    """One topic of one run."""

    run: pathlib.Path
    topic: str
    #: The topic's first folder below ``objects``.
    folder: pathlib.Path

    def __str__(self) -> str:
        return f"{self.run.name}/{self.topic}"

    @property
    def objects(self) -> pathlib.Path:
        return self.run / "objects"


def tiered_topics(root: pathlib.Path) -> Iterator[Case]:
    """Every topic of a run that has objects."""
    for run in sorted(p for p in root.iterdir() if (p / "objects").is_dir() and (p / "topics.json").exists()):
        for topic, about in json.loads((run / "topics.json").read_text()).items():
            if about["config"].get("remote.storage.enable") != "true":
                continue
            name = re.compile(re.escape(topic) + r"-(\d+-)?[\w-]{22}")
            folders = [p for p in sorted((run / "objects").rglob("*")) if p.is_dir() and name.fullmatch(p.name)]
            if folders:
                yield Case(run, topic, folders[0])


def log_folders(root: pathlib.Path) -> Iterator[tuple[pathlib.Path, str]]:
    """(log directory, topic) of every broker's disk before anything was deleted, with an answer."""
    for run in sorted(p for p in root.iterdir() if (p / "local-before").is_dir()):
        topics = json.loads((run / "topics.json").read_text())
        for folder in (run / "local-before", *sorted((run / "local-before").glob("broker*"))):
            for topic in topics:
                held = any(path.name[len(topic) + 1 :].isdigit() for path in folder.glob(f"{topic}-*"))
                if held and (run / "expected" / f"{topic}.read_uncommitted.jsonl.gz").exists():
                    yield folder, topic


def config_of(run: pathlib.Path) -> dict[str, str]:
    """The plugin's keys of a run; key files as they lie in the golden data."""
    rsm: dict[str, str] = json.loads((run / "config.json").read_text()).get("rsm", {})
    keys = {k: v for k, v in rsm.items() if k.startswith("rsm.config.") and ".storage." not in k}
    ids = [key_id for key_id in keys.get("rsm.config.encryption.key.pairs", "").split(",") if key_id]
    for key_id, folder in zip(ids, sorted((run.parent / "keys").iterdir()), strict=False):
        for kind in ("public", "private"):
            keys[f"rsm.config.encryption.key.pairs.{key_id}.{kind}.key.file"] = str(folder / f"{kind}.der")
    return keys


def metadata_folders(run: pathlib.Path) -> list[str]:
    """The log directories of a run that hold its metadata topic at the end; none where it was left out of the data."""
    found = (run / "broker-after-stop").rglob("__remote_log_metadata-*")
    return sorted({str(path.parent) for path in found if path.is_dir()})


def bucket_root(run: pathlib.Path) -> pathlib.Path:
    """Where the keys of a run's segments begin."""
    return next((path for path in (run / "objects/kafka-tiered-storage",) if path.is_dir()), run / "objects")


def tiered_offsets(case: Case) -> dict[int, tuple[int, int]]:
    """Partition -> (first, last) offset that the bucket holds: by the manifests, else by what the broker said."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for manifest in case.folder.rglob("*.rsm-manifest"):
        about = json.loads(manifest.read_text())["remoteLogSegmentMetadata"]
        partition = about["remoteLogSegmentId"]["topicIdPartition"]["topicPartition"]["partition"]
        spans.setdefault(partition, []).append((about["startOffset"], about["endOffset"]))
    if spans:
        return {p: (min(s for s, _ in v), max(e for _, e in v)) for p, v in spans.items()}
    answers = list_offsets(case)
    return {
        p: (known["earliest(-2)"]["offset"], known["latestTiered(-5)"]["offset"])
        for p, known in answers.items()
        if known["latestTiered(-5)"]["offset"] >= 0
    }


def list_offsets(case: Case, folder: str = "expected") -> dict[int, dict[str, dict[str, int]]]:
    """Partition -> question -> the broker's answer to ListOffsets."""
    text = (case.run / folder / f"{case.topic}.listoffsets.json").read_text()
    return {int(p): about for p, about in json.loads(text)["partitions"].items()}


def stable_end(case: Case, partition: int, last_offset: int) -> int:
    """First offset of a transaction that is undecided in the tier, else behind the last offset."""
    name = f"{case.topic}-{partition}/{last_offset + 1:020d}.snapshot"
    snapshots = list((case.run / "local-before").rglob(name))
    data = snapshots[0].read_bytes() if snapshots else _stored_snapshot(case, partition, last_offset)
    count = struct.unpack_from(">i", data, 6)[0]
    firsts = [struct.unpack_from(">qhiqiqiq", data, 10 + 46 * n)[-1] for n in range(count)]
    return min([first for first in firsts if first >= 0] + [last_offset + 1])


def _stored_snapshot(case: Case, partition: int, last_offset: int) -> bytes:
    """Where the broker's own file was left out of the data: the plain one in the bucket."""
    for manifest in case.folder.glob(f"{partition}/*.rsm-manifest"):
        about = json.loads(manifest.read_text())
        if about["remoteLogSegmentMetadata"]["endOffset"] == last_offset and "encryption" not in about:
            place = about["segmentIndexes"]["producerSnapshot"]
            data = manifest.with_suffix(".indexes").read_bytes()
            return data[place["position"] : place["position"] + place["size"]]
    raise LookupError(f"no producer snapshot for {case}-{partition} at {last_offset + 1}")


def consumed(run: pathlib.Path, topic: str, isolation: str, folder: str = "expected") -> list[Row] | None:
    """What a real consumer got, by partition and offset; None if there is no answer file.

    There is none for read_committed where it is the same as for read_uncommitted.
    """
    paths = (_answer_path(run, topic, level, folder) for level in (isolation, "read_uncommitted"))
    found = next((path for path in paths if path.exists()), None)
    if found is None:
        return None
    with gzip.open(found, "rt") as lines:
        return sorted(expected_row(json.loads(line)) for line in lines)


def answers(case: Case, isolation: str, folder: str = "expected") -> list[Row] | None:
    """The same, restricted to what the bucket alone can answer for."""
    rows = consumed(case.run, case.topic, isolation, folder)
    if rows is None:
        return None
    transactional = isolation == "read_committed" and _answer_path(case.run, case.topic, isolation, folder).exists()
    ends: dict[int, tuple[int, int]] = {}
    for partition, (first, last) in tiered_offsets(case).items():
        ends[partition] = (first, stable_end(case, partition, last) if transactional else last + 1)
    return sorted(row for row in rows if row[0] in ends and ends[row[0]][0] <= row[1] < ends[row[0]][1])


def _answer_path(run: pathlib.Path, topic: str, isolation: str, folder: str) -> pathlib.Path:
    return run / folder / f"{topic}.{isolation}.jsonl.gz"


def expected_row(record: dict[str, object]) -> Row:
    def raw(text: object) -> bytes | None:
        return None if text is None else base64.b64decode(str(text))

    value = f"{record['valueLen']}:{record['valueSha256']}" if "valueSha256" in record else raw(record["value"])
    headers = tuple((str(name), raw(content)) for name, content in record["headers"])  # type: ignore[attr-defined]
    return (
        int(str(record["partition"])),
        int(str(record["offset"])),
        int(str(record["timestamp"])),
        str(record["timestampType"]),
        int(str(record["leaderEpoch"])),
        raw(record["key"]),
        value,
        headers,
    )


#: The columns that ``rows_of`` needs.
ROW_COLUMNS = ("partition", "offset", "timestamp", "timestampType", "leaderEpoch", "key", "value", "headers")


def rows_of(table: pa.Table) -> list[Row]:
    """Our rows in the form of the answers, in the order given."""
    table = table.set_column(
        table.schema.get_field_index("timestamp"), "timestamp", table["timestamp"].cast(pa.int64())
    )
    rows: list[Row] = []
    for record in table.to_pylist():
        value = record["value"]
        if value is not None and len(value) > 4096:
            value = f"{len(value)}:{hashlib.sha256(value).hexdigest()}"
        headers = tuple((header["key"], header["value"]) for header in record["headers"] or ())
        rows.append(
            (
                record["partition"],
                record["offset"],
                record["timestamp"],
                TIMESTAMP_TYPES[record["timestampType"]],
                record["leaderEpoch"],
                record["key"],
                value,
                headers,
            )
        )
    return rows
