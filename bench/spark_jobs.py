"""A job by Spark's executors beside the command's own threads, on the same cores: ``tierlog verify`` of one bucket.

The bucket is a folder of segments of 128 MiB of records, in batches of 256 KiB that zstd compresses: as they are, and
in chunks of zstd and AES. The session is up; both sides read all bytes, and have to find the same counts.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import shutil
import sys
from typing import Final

from bench.data import bench_log
from bench.harness import Suite, arguments, equal, in_turn, work_folder
from bench.storage import folder_keys, form_keys, manager_over
from pyspark_tierlog import jobs
from tests.support.segments import make_segment
from tierlog import upkeep

#: Of records.
SEGMENT_BYTES: Final = 128 << 20
#: Of the speed of the command's own threads.
BAR: Final = 0.9


def main() -> None:
    chosen = arguments(__doc__, ("plain", "zstd + AES"), gigabytes=8.0)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark, suite = (
        jobs.open_session("local[2]", "tierlog-bench"),
        Suite("spark_jobs", {"pyspark": importlib.metadata.version("pyspark")}),
    )
    with work_folder() as folder:
        log = bench_log("zstd", batch_bytes=256 << 10, mean_size=1000, total_bytes=SEGMENT_BYTES)
        count = max(2, round(chosen.gigabytes * chosen.scale * 1e9 / len(log.data)))
        source = make_segment(log.data, lineage={0: 0}).closed_in(folder / "log").with_id(1)
        for form in chosen.parts:
            root, keys = folder / "bucket", form_keys(form)
            with manager_over(dict(keys) | folder_keys(root)) as (manager, _):
                for number in range(count):
                    attempt = source.with_id(1 + number)
                    manager.copy_log_segment_data(attempt.metadata, attempt.data)
            config = {"key.prefix": "", **{name: value for name, value in keys.items() if "encryption.key" in name}}

            def threads(root: pathlib.Path = root, config: dict[str, str] = config) -> list[int]:
                return _counts(upkeep.verify(root, config=config))

            def executors(root: pathlib.Path = root, config: dict[str, str] = config) -> list[int]:
                return _counts(jobs.verify(spark, root, config=config))

            found = in_turn({"tierlog verify": threads, "job": executors}, chosen.rounds)
            equal(form, {name: taken[0].told for name, taken in found.items()})
            what = (
                f"verify, {count * len(log.data) / 1e9:.1f} GB in {count} segments, {form}, two executors of one core"
            )
            suite.seconds(what, found, "tierlog verify", ours="job", bar=BAR)
            shutil.rmtree(root)
    spark.stop()
    suite.save()


def _counts(result: upkeep.VerifyResult) -> list[int]:
    return [result.segments or 0, result.batches, result.records, result.size_bytes, result.faults, result.errors]


if __name__ == "__main__":
    main()
