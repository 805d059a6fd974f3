"""``tierlog recover``: a broker's recovery after an unclean stop, without the broker."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tierlog.cli.exits import ExitCode, complain, one_line
from tierlog.cli.options import Output, OutputOption

if TYPE_CHECKING:
    from tierlog.log.local.directory.directory_recovery import DirectoryRecovery, RecoveredLog

#: Bytes of changes that a dry run may hold in memory.
_CHANGED_BYTES_MAX: Final = 1 << 30


def recover(
    path: Annotated[
        str,
        typer.Argument(
            metavar="LOGDIR", help="A broker's log directory, or one partition's folder.", show_default=False
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done; nothing on the disk changes.")
    ] = False,
    index_interval_bytes: Annotated[
        int,
        typer.Option(
            "--index-interval-bytes",
            min=0,
            max=2**31 - 1,
            help="The topics' index.interval.bytes: the disk does not say it, and rebuilt indexes go by it.",
        ),
    ] = 4096,
    output: OutputOption = Output.TEXT,
) -> ExitCode:
    """Mend the logs of a stopped broker as it would itself when it starts, and say what was cut and rebuilt.

    Every log is read from its recovery point on: it is cut at the first batch that is torn or damaged, and the bytes
    behind are deleted; its indexes, leader epochs and producer snapshots are rebuilt; interrupted deletions, cleanings
    and swaps are finished or undone. A hole between two segments stays, and is reported ("hole"): the disk does not say
    whether the topic is compacted; so does a lineage that begins above its tiered log's start ("lineage"): that log has
    to be built anew from the tier. Then the checkpoints and .kafka_cleanshutdown are written, so that a broker (and a
    second run) finds nothing to mend. Where .kafka_cleanshutdown is there already, only missing files are rebuilt.

    The command refuses (3) while a broker has the directory open. Folders that a broker is about to delete, and the
    metadata log, are left alone. A checkpoint that cannot be read counts as empty. Of one partition's folder all is
    read, and nothing outside of it is changed.

    Try --dry-run first: it runs the same code over files whose changes stay in memory. It ends with 1 if there is
    something to mend, else with 0. Without it the command ends with 0 when all is done, with 3 if a log could not be
    recovered: then the others are, and the directory stays unclean.

    JSON: one object for each log, {"log","topic","partition","logStartOffset","logEndOffset","batchesChecked",
    "bytesChecked","actions","error"}, each action {"kind","path","text","bytesCut"}; last one for the directory,
    {"logDir","wasClean","dryRun","left","notes"}.
    """
    from tierlog.log.local.directory.directory_recovery import RecoveredLog, recover_directory
    from tierlog.log.local.log_config import LogConfig
    from tierlog.runtime.machine import Machine

    machine = Machine()
    if dry_run:
        from tierlog.runtime.simulated.memory_files import MemoryFiles

        files = MemoryFiles(machine.clock, capacity_bytes=_CHANGED_BYTES_MAX, base=machine.files)
        machine = Machine(files=files)
    config = LogConfig(index_interval_bytes=index_interval_bytes)
    outcome: DirectoryRecovery | None = None
    for found in recover_directory(path, machine=machine, config=config):
        if isinstance(found, RecoveredLog):
            _print_log(found, output)
        else:
            outcome = found
            _print_directory(found, output, dry_run=dry_run)
    sys.stdout.flush()
    if outcome is None or outcome.has_failed:
        return ExitCode.DATA_ERROR
    return ExitCode.FAULTS_FOUND if dry_run and not outcome.is_sound else ExitCode.DONE


def _print_log(log: RecoveredLog, output: Output) -> None:
    if log.error is not None:
        complain(f"{log.path}: {log.error}")
    if output is Output.JSON:
        actions = [
            {"kind": action.kind, "path": action.path, "text": action.text, "bytesCut": action.bytes_cut}
            for action in log.report.actions
        ]
        told = {
            "log": log.path,
            "topic": log.partition.topic,
            "partition": log.partition.partition,
            "logStartOffset": log.log_start_offset,
            "logEndOffset": log.log_end_offset,
            "batchesChecked": log.report.batches_checked,
            "bytesChecked": log.report.bytes_checked,
            "actions": actions,
            "error": None if log.error is None else str(log.error),
        }
        print(json.dumps(told, ensure_ascii=False), flush=True)
        return
    if log.error is not None:
        return
    for action in log.report.actions:
        size = f", {action.bytes_cut} bytes" if action.bytes_cut else ""
        print(one_line(f"{action.kind}: {action.path}{size}: {action.text}"))
    name = log.path.rpartition("/")[2]
    read = f"{log.report.batches_checked} batches of {log.report.bytes_checked} bytes read"
    print(one_line(f"{name}: offsets {log.log_start_offset} … {log.log_end_offset}; {read}"), flush=True)


def _print_directory(outcome: DirectoryRecovery, output: Output, *, dry_run: bool) -> None:
    if output is Output.JSON:
        left = [{"name": name, "why": why} for name, why in outcome.left]
        told = {"logDir": outcome.path, "wasClean": outcome.was_clean, "dryRun": dry_run}
        print(json.dumps({**told, "left": left, "notes": outcome.notes}, ensure_ascii=False))
        return
    for name, why in outcome.left:
        print(one_line(f"left alone: {name}: {why}"))
    for note in outcome.notes:
        print(one_line(f"note: {note}"))
    cut = sum(action.bytes_cut for log in outcome.logs for action in log.report.actions if action.kind == "cut")
    mended = sum(any(action.is_change for action in log.report.actions) for log in outcome.logs)
    failed = sum(log.error is not None for log in outcome.logs)
    state = "closed cleanly" if outcome.was_clean else "not closed cleanly (.kafka_cleanshutdown is missing)"
    done = "would be mended, nothing was changed" if dry_run else "mended"
    print(one_line(f"{outcome.path}: {state}; {len(outcome.logs)} logs, {mended} {done}, {cut} bytes cut"))
    if failed:
        print(f"{failed} logs could not be recovered: the directory stays unclean")
