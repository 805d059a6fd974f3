"""The cost of an idle Tierlog: imports, and a storage manager on S3 without calls.

    python -m bench.footprint [imports idle] [--rounds 5]

Every import is of a fresh interpreter, its files in the page cache; the time is that of the import statement. The
manager is one of a process that imports nothing else, on a real S3 server on loopback (SeaweedFS) with the probe of its
start: as it is configured, and ten seconds behind a copy and fetches of 16 MiB.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import sys
from typing import Any

from bench.bare import CORES
from bench.harness import MIB, ROOT, Suite, arguments, spread, work_folder
from bench.storage_sides import bench_segment, form_keys, s3_keys, write_description
from tests.support.servers import seaweed

_CONFIGURED = (
    "from tierlog.remote import TieredStorageManager; manager = TieredStorageManager(); "
    "manager.configure({'storage.backend.class': 'filesystem', 'storage.root': '.', 'chunk.size': '4194304', "
    "'store.probe.enabled': 'false'})"
)
#: Statement to the milliseconds that it may take; work that an import puts off shows in the last.
IMPORTS: dict[str, float | None] = {
    "import pyspark_tierlog": 50,
    "from tierlog.remote import TieredStorageManager": 300,
    _CONFIGURED: None,
}
IDLE_MIB_MAX, THREADS_MORE = 90, 8
REST_SECONDS = 10

_TIMED = """
import time
before = time.perf_counter()
{statement}
seconds = time.perf_counter() - before
import json, sys
print(json.dumps({{"seconds": seconds, "modules": len(sys.modules)}}))
"""

# No module of the bench: its imports would be measured too.
_IDLE = """
import json, sys, time
from tierlog.remote import LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata, TieredStorageManager
from tierlog.remote import RemoteLogSegmentState, TopicIdPartition, Uuid
import dataclasses

def memory():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {"VmRSS": int(fields["VmRSS"].split()[0]) * 1024, "threads": int(fields["Threads"])}

job = json.loads(sys.stdin.read())
manager = TieredStorageManager()
manager.configure(job["keys"])
time.sleep(2)
told = {"configured": memory()}
about = job["segment"]
data = LogSegmentData(about["log_segment"], about["offset_index"], about["time_index"], None,
                      about["producer_snapshot"], about["leaderEpochs"].encode())
partition = TopicIdPartition(Uuid.from_text(about["topicId"]), about["topic"], about["partition"])
metadata = RemoteLogSegmentMetadata(
    RemoteLogSegmentId(partition, Uuid(bytes(15) + b"\\2")), start_offset=0, end_offset=about["endOffset"],
    max_timestamp_ms=about["maxTimestampMs"], broker_id=1, event_timestamp_ms=1_700_000_000_000,
    segment_size_in_bytes=about["sizeBytes"], segment_leader_epochs={0: 0}, txn_idx_empty=True)
manager.copy_log_segment_data(metadata, data)
metadata = dataclasses.replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
with manager.fetch_log_segment(metadata, 0) as stream:
    assert sum(view.nbytes for view in stream.buffers()) == about["sizeBytes"]
time.sleep(job["rest"])
told["rested"] = memory()
manager.close()
print(json.dumps(told))
"""


def run(program: str, given: str = "") -> dict[str, Any]:
    """Run a program in a fresh interpreter and return its answer."""
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT / "engine")
    answer: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return answer


def imports(suite: Suite, rounds: int) -> None:
    """Milliseconds of import statements, each in a fresh interpreter."""
    answers: dict[str, list[dict[str, Any]]] = {statement: [] for statement in IMPORTS}
    for _ in range(rounds + 1):
        for statement, told in answers.items():
            told.append(run(_TIMED.format(statement=statement)))
    for statement, told in answers.items():
        taken = [1000 * answer["seconds"] for answer in told[1:]]
        about = f"{spread(taken)} ms, {told[-1]['modules']} modules"
        name = "the same, and a manager configured over a folder" if statement == _CONFIGURED else f"`{statement}`"
        suite.add(f"{name}, ms", about, statistics.median(taken), IMPORTS[statement], least=False)


def idle(suite: Suite, folder: pathlib.Path) -> None:
    """Threads and memory of a manager on S3."""
    described = json.loads(write_description(bench_segment(folder / "source", 16 * MIB)).read_text())
    (folder / "s3").mkdir()
    with seaweed(folder / "s3") as server:
        keys = form_keys("zstd + AES") | s3_keys(server.options)
        told = run(_IDLE, json.dumps({"keys": keys, "segment": described, "rest": REST_SECONDS}))
    for name, when in (("configured", "configured"), ("rested", f"{REST_SECONDS} s behind a copy and a fetch")):
        what, memory = f"idle manager on S3, {when}", told[name]
        text = f"{memory['threads']} threads, {memory['VmRSS'] / MIB:.0f} MiB"
        suite.add(f"{what}, MiB resident", text, memory["VmRSS"] / MIB, IDLE_MIB_MAX, least=False)
        suite.add(f"{what}, threads", text, memory["threads"], CORES + THREADS_MORE, least=False)


def main() -> None:
    chosen = arguments(__doc__, ("imports", "idle"))
    suite = Suite("footprint")
    if "imports" in chosen.parts:
        imports(suite, 2 * chosen.rounds + 1)
    if "idle" in chosen.parts:
        with work_folder() as folder:
            idle(suite, folder)
    suite.save()


if __name__ == "__main__":
    main()
