"""Replication's machines beside what they drive.

    python -m bench.replication [follower leaders] [--rounds 5] [--scale 1]

A follower at full speed (answers of 256 KiB in batches of 16 KiB, logs in memory-backed files) beside the same bytes
given to ``append_as_follower`` alone, by processor time; and a tick of 10,000 leaders for which nothing is due.
"""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable, Iterator

from bench.harness import Suite, arguments, equal, in_turn, quotient, spread, work_folder
from tierlog.log.local import UnifiedLog
from tierlog.records.builder import RecordBatchBuilder
from tierlog.replication import Brokers, BrokerState, FetchedRecords, Follower, Leader, LeaderAndIsr, tick_all
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.memory_files import MemoryFiles

BATCHES, RECORDS, RECORD_BYTES = 16, 16, 1000
ANSWERS = 400
LEADERS = 10_000


def answers(count: int) -> Iterator[bytes]:
    """A leader's answers: whole batches, one behind the other."""
    offset = 0
    for _ in range(count):
        parts = []
        for _ in range(BATCHES):
            builder = RecordBatchBuilder(offset, leader_epoch=0)
            for _ in range(RECORDS):
                builder.append(None, os.urandom(RECORD_BYTES), timestamp_ms=1)
            parts.append(builder.build())
            offset += RECORDS
        yield b"".join(parts)


def timed(folder: pathlib.Path, drive: Callable[[UnifiedLog], None]) -> dict[str, float]:
    """Processor seconds of a drive over a new log, and where the log ends then."""
    with work_folder(str(folder)) as below, UnifiedLog.open(f"{below}/orders-0") as log:
        log.assign_epoch_start_offset(0, 0)
        start = time.process_time()
        drive(log)
        cpu = time.process_time() - start
        return {"wall": cpu, "cpu": cpu, "end": log.log_end_offset}


def measure_follower(suite: Suite, rounds: int, scale: float) -> None:
    sent = list(answers(max(2, int(ANSWERS * scale))))
    end = len(sent) * BATCHES * RECORDS

    def bare(log: UnifiedLog) -> None:
        for each in sent:
            log.append_as_follower(each, leader_epoch=0)

    def machine(log: UnifiedLog) -> None:
        follower = Follower(log)
        follower.follow(1, 0)
        for each in sent:
            request = follower.next_request(0)
            if request is None:
                raise SystemExit(f"the follower is {follower.state}")
            follower.on_answer(request, FetchedRecords(end, 0, (each,)), 0)

    folder = pathlib.Path("/dev/shm")
    found = in_turn({"machine": lambda: timed(folder, machine), "append alone": lambda: timed(folder, bare)}, rounds)
    equal("log end", {side: [each.told["end"] for each in each_side] for side, each_side in found.items()})
    micros = {side: [each.cpu * 1e6 / len(sent) for each in each_side] for side, each_side in found.items()}
    told = f"{spread(micros['machine'])} µs an answer, append alone {spread(micros['append alone'])}"
    value = quotient(micros["machine"], micros["append alone"])
    suite.add("a follower's answer of 256 KiB, CPU / append_as_follower", told, value, 1.15, least=False)


def measure_leaders(suite: Suite, rounds: int, scale: float) -> None:
    log = UnifiedLog.open("/logs/orders-0", machine=Machine(files=MemoryFiles()))
    brokers = Brokers({broker: BrokerState(1) for broker in (1, 2, 3)})
    leaders = [Leader(log, 1, brokers) for _ in range(max(10, int(LEADERS * scale)))]
    state = LeaderAndIsr(1, 1, (1, 2, 3), frozenset((1, 2, 3)))
    for leader in leaders:
        leader.lead(state, 0)
    found = in_turn({"tick": lambda: tick_all(leaders, 100)}, rounds, warm=2)
    millis = [each.wall * 1e3 for each in found["tick"]]
    told = f"{spread(millis, '.2f')} ms, {len(leaders)} leaders, nothing due"
    suite.add("a tick of 10,000 leaders, ms", told, sorted(millis)[len(millis) // 2], 5.0, least=False)


def main() -> None:
    asked = arguments(__doc__, ("follower", "leaders"))
    suite = Suite("replication")
    if "follower" in asked.parts:
        measure_follower(suite, asked.rounds, asked.scale)
    if "leaders" in asked.parts:
        measure_leaders(suite, asked.rounds, asked.scale)
    suite.save()


if __name__ == "__main__":
    main()
