"""Verify one file of a log directory (or of LocalTieredStorage) by itself; an index also against the log beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from tierlog._native import indexes
from tierlog.errors import ConfigError, CorruptIndexError
from tierlog.log.checks.findings import Finding, Report, fault_of
from tierlog.log.checks.index_checks import OffsetIndexCheck, TimeIndexCheck
from tierlog.log.checks.segment_walk import SegmentCheck
from tierlog.log.formats.checkpoints import parse_offset_checkpoint
from tierlog.log.formats.identity_files import parse_partition_metadata
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.log.formats.segment_files import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCH_CHECKPOINT,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SegmentFileKind,
)
from tierlog.remote.tier.objects.object_keys import LOCAL_TIERED_CHECKPOINT
from tierlog.runtime.machine.files import Files
from tierlog.upkeep.verification.log_walk import LogWalk, iter_file_windows
from tierlog.upkeep.verification.segment_checks import ProducerChecks, RangeCheck

INDEX_SIZE_BYTES_MAX = 256 << 20
_BASE_OFFSET = re.compile(r"([0-9]{20})(-[A-Za-z0-9_-]{22})?\.")
_INDEXES = (SegmentFileKind.OFFSET_INDEX, SegmentFileKind.TIME_INDEX, SegmentFileKind.TRANSACTION_INDEX)
_PARSERS: dict[str, Callable[[bytes], object]] = {
    SegmentFileKind.PRODUCER_SNAPSHOT: parse_producer_snapshot,
    LEADER_EPOCH_CHECKPOINT: parse_leader_epochs,
    f".{LOCAL_TIERED_CHECKPOINT}": parse_leader_epochs,
    PARTITION_METADATA: parse_partition_metadata,
    RECOVERY_POINTS: parse_offset_checkpoint,
    LOG_STARTS: parse_offset_checkpoint,
    HIGH_WATERMARKS: parse_offset_checkpoint,
    CLEANER_OFFSETS: parse_offset_checkpoint,
}


def verify_file(files: Files, path: str) -> Report:
    """Check one file; its name says of which kind it is.

    Raises:
        ConfigError: the name is not that of a file that can be checked by itself.
        StoreError and its kinds: the file cannot be read.
    """
    name = path.rsplit("/", 1)[-1]
    if name.endswith(SegmentFileKind.LOG):
        bounds = RangeCheck(path, start_offset=_base_offset(name), end_offset=None, max_timestamp_ms=None)
        return _verify_log(files, path, [bounds])
    for kind in _INDEXES:
        if name.endswith(kind):
            return _verify_index(files, path, kind)
    for ending, parse in _PARSERS.items():
        if name.endswith(ending):
            return _verify_parsed(files, path, parse)
    raise ConfigError(
        f"{path}: not a file that can be verified by itself; known are .log, {', '.join(_INDEXES)}, "
        f"{', '.join(_PARSERS)}. Of a bucket, give the folder."
    )


def _base_offset(name: str) -> int | None:
    match = _BASE_OFFSET.match(name)
    return int(match[1]) if match and int(match[1]) < 2**63 else None


def _verify_log(files: Files, path: str, checks: list[SegmentCheck]) -> Report:
    report = Report(path)
    walk = LogWalk(iter_file_windows(files, path), path)
    for run in walk:
        for check in checks:
            report.findings.extend(check.observe(run))
    report.findings.extend(_told_of_one_file(finding) for finding in walk.findings)
    for check in checks:
        report.findings.extend(check.finish(walk))
    report.size_bytes, report.batches, report.records = walk.end_position, walk.batches, walk.records
    return report


def _told_of_one_file(finding: Finding) -> Finding:
    """Return a note for a file by itself: only the log directory shows whether a broker still writes to it, and a cut
    file looks the same.
    """
    if finding.kind != "TRUNCATED":
        return finding
    return replace(
        finding,
        text=f"{finding.text}: normal for the active segment, which a broker is writing to (`tierlog verify` of its "
        "log directory knows it, and calls this a note); any other file was cut",
    )


def _verify_index(files: Files, path: str, kind: SegmentFileKind) -> Report:
    data = files.read_whole(path, limit_bytes=INDEX_SIZE_BYTES_MAX)
    base_offset = _base_offset(path.rsplit("/", 1)[-1])
    log = path[: -len(kind)] + SegmentFileKind.LOG
    if base_offset is None or files.find(log) is None:
        return Report(path, _alone(data, base_offset or 0, kind, path), size_bytes=len(data))
    report = _verify_log(files, log, [_index_check(data, base_offset, kind, path)])
    report.name = path
    return report


def _index_check(data: bytes, base_offset: int, kind: SegmentFileKind, path: str) -> SegmentCheck:
    if kind is SegmentFileKind.OFFSET_INDEX:
        return OffsetIndexCheck(data, base_offset, path)
    if kind is SegmentFileKind.TIME_INDEX:
        return TimeIndexCheck(data, base_offset, path)
    return ProducerChecks(
        transaction_index=data, transaction_index_where=path, snapshot=None, snapshot_where=path, end_offset=None
    )


def _alone(data: bytes, base_offset: int, kind: SegmentFileKind, path: str) -> list[Finding]:
    check = {
        SegmentFileKind.OFFSET_INDEX: indexes.check_offset_index,
        SegmentFileKind.TIME_INDEX: indexes.check_time_index,
        SegmentFileKind.TRANSACTION_INDEX: indexes.check_transaction_index,
    }[kind]
    try:
        check(data, base_offset)
    except CorruptIndexError as error:
        return [fault_of(error, path)]
    return []


def _verify_parsed(files: Files, path: str, parse: Callable[[bytes], object]) -> Report:
    data = files.read_whole(path, limit_bytes=INDEX_SIZE_BYTES_MAX)
    report = Report(path, size_bytes=len(data))
    try:
        parse(data)
    except CorruptIndexError as error:
        report.findings.append(fault_of(error, path))
    return report
