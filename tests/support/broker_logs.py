"""The partitions' folders of brokers' disks in the golden data, with all that the broker said of them."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from tierlog.log.formats.checkpoints import parse_offset_checkpoint
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import SystemClock

#: No later than any record of the runs: no producer has expired.
RUN_MS = 1_700_000_000_000
#: What all brokers of the golden data were configured with (its README).
BROKER_SETTINGS = {"segment.index.bytes": "16384", "index.interval.bytes": "4096"}

Answers = dict[str, dict[str, int | None]]


class ToldClock(SystemClock):
    """A clock that stands where it was told."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def time_ms(self) -> int:
        return self.now_ms


def machine_of_the_run() -> Machine:
    return Machine(clock=ToldClock(RUN_MS))


@dataclass(frozen=True)
class BrokerLog:
    """One partition's folder; ``state`` is "local-before" (of a running broker) or "broker-after-stop"."""

    run: pathlib.Path
    folder: pathlib.Path
    state: str

    def __str__(self) -> str:
        return "/".join((self.run.name, *self.folder.relative_to(self.run).parts))

    @property
    def topic(self) -> str:
        return self.folder.name.rpartition("-")[0]

    @property
    def partition(self) -> int:
        return int(self.folder.name.rpartition("-")[2])

    @property
    def config(self) -> LogConfig:
        settings = json.loads((self.run / "topics.json").read_text())[self.topic]["config"]
        return LogConfig.from_kafka({**BROKER_SETTINGS, **settings})

    @property
    def was_restarted(self) -> bool:
        """Whether the broker was stopped and started in between: its files show the stop, which no rewrite repeats."""
        bases = {path.stem for path in self.folder.glob("*.log")}
        strays = {path.stem for path in self.folder.glob("*.snapshot")} - bases
        return len(strays) > int(self.state == "broker-after-stop")

    @property
    def checkpoints(self) -> LogCheckpoints:
        """What the log directory's checkpoints say of it."""
        point = self._in_checkpoint("recovery-point")
        return LogCheckpoints(point, self._in_checkpoint("log-start") or 0, self._in_checkpoint("replication") or 0)

    def _in_checkpoint(self, name: str) -> int | None:
        path = self.folder.parent / f"{name}-offset-checkpoint"
        return (
            parse_offset_checkpoint(path.read_bytes()).get((self.topic, self.partition), 0) if path.exists() else None
        )

    def answers(self) -> Answers | None:
        """The broker's answers to ListOffsets while the folder was as it is; None if nobody asked."""
        late = ("expected-after-delete", "expected") if self.state == "broker-after-stop" else ()
        for name in late or ("expected-before-local-delete",):
            path = self.run / name / f"{self.topic}.listoffsets.json"
            if path.exists():
                told: Answers = json.loads(path.read_text())["partitions"][str(self.partition)]
                return told
        return None

    def copy_to(self, folder: pathlib.Path) -> str:
        """A copy that can be opened."""
        target = folder / self.folder.name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder, target, copy_function=shutil.copyfile)
        target.chmod(0o755)
        for path in target.glob("*.log"):  # the golden data has lost these times: the largest of an empty segment
            os.utime(path, ns=(RUN_MS * 1_000_000, RUN_MS * 1_000_000))
        return str(target)

    def open(self, folder: str, *, clean: bool, checkpoints: LogCheckpoints | None = None) -> UnifiedLog:
        """Open a copy as the broker would have; without a follower, so that all of it is replicated."""
        log = UnifiedLog.open(
            folder,
            machine=machine_of_the_run(),
            config=self.config,
            checkpoints=checkpoints or self.checkpoints,
            had_clean_shutdown=clean,
            remote_log_enabled=True,
        )
        log.update_high_watermark(log.log_end_offset)
        return log


def broker_logs(root: pathlib.Path, state: str) -> Iterator[BrokerLog]:
    """Every partition's folder of a state, in every run, of brokers that ran through."""
    for run in sorted(path for path in root.iterdir() if (path / state).is_dir()):
        for folder in sorted((run / state).rglob("*-*")):
            if folder.is_dir() and folder.name.rpartition("-")[2].isdigit():
                found = BrokerLog(run, folder, state)
                if not found.was_restarted:
                    yield found
