"""A stream over a tier that grows between its runs, by a session of either kind; no import of Spark's."""

from __future__ import annotations

import itertools
import json
import pathlib
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Stream:
    """What a query reads and where it writes.

    Attributes:
        options: Of the source, its ``path`` among them.
        parts: A folder for each run, which is copied into the path in front of it.
        work: Is made, for ``out`` (Parquet) and ``checkpoint``.
    """

    options: dict[str, str]
    parts: list[str]
    work: str

    @property
    def out(self) -> str:
        return f"{self.work}/out"

    @property
    def checkpoint(self) -> str:
        return f"{self.work}/checkpoint"


def run(spark: SparkSession, stream: Stream, part: str) -> list[int]:
    """Read all that the tier has with one part more, from the checkpoint on; return how many offsets each batch has.

    Raises:
        AssertionError: it did not end within two minutes.
    """
    before = len(_batches(stream))
    shutil.copytree(part, stream.options["path"], dirs_exist_ok=True)
    frame = spark.readStream.format("tierlog").options(**stream.options).load()
    writing = frame.writeStream.format("parquet").option("path", stream.out).trigger(availableNow=True)
    query = writing.option("checkpointLocation", stream.checkpoint).start()
    assert query.awaitTermination(WAIT_SECONDS)
    return _batches(stream)[before:]


def _batches(stream: Stream) -> list[int]:
    """How many offsets each batch of a checkpoint has: a session of Spark Connect forgets a query's progress."""
    ends = [0]
    for number in range(len(list(pathlib.Path(stream.checkpoint, "commits").glob("[0-9]*")))):
        written = pathlib.Path(stream.checkpoint, "offsets", str(number)).read_text().splitlines()[-1]
        ends.append(sum(sum(partitions.values()) for partitions in json.loads(written).values()))
    return [end - start for start, end in itertools.pairwise(ends)]


def parts_of(objects: pathlib.Path, work: pathlib.Path) -> list[str]:
    """Make folders of a bucket's objects: the first half of each partition's segments, the rest, and nothing."""
    parts = [work / name for name in ("half", "rest", "nothing")]
    for folder in {path.parent for path in objects.rglob("*") if path.is_file()}:
        files = sorted(folder.iterdir())
        firsts = sorted({path.name[:20] for path in files})  # of a segment's objects: its first offset
        for path in files:
            part = parts[firsts.index(path.name[:20]) >= (len(firsts) + 1) // 2]
            target = part / path.relative_to(objects)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    parts[-1].mkdir()
    return [str(part) for part in parts]
