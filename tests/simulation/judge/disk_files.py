"""What a broker that has stopped may leave on its disk: the disk's half of invariant 8."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from tests.simulation.facts import Violation

_SEGMENT = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)")
_DELETED = re.compile(r"\d{20}\.(log|index|timeindex|txnindex|snapshot)\.deleted")
#: ``moved-from`` stays where a disk failed amid the end of a move: the other log may come back with it.
_OF_LOG = {"leader-epoch-checkpoint", "partition.metadata", "start-from-tier", "moved-from"}
_OF_DIRECTORY = {
    ".kafka_cleanshutdown",
    ".lock",
    "_rlmm_snapshot",
    "meta.properties",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
}
_DELETED_FOLDER = re.compile(r".+-\d+\.[0-9a-f]+-delete")
_CHUNK = re.compile(r"/cache/tierlog-chunks/[0-9a-f]{2}/[0-9a-f-]+\.[0-9a-f]+\.chunk")


def waits_to_go(path: str) -> bool:
    """Whether a file was set aside, to be deleted after ``file.delete.delay.ms``: a stop leaves it, as Kafka's does."""
    *_, folder, name = path.split("/")
    return bool(_DELETED.fullmatch(name) or _DELETED_FOLDER.fullmatch(folder))


def check_files(broker: int, paths: Iterable[str], partitions: AbstractSet[str], before: AbstractSet[str]) -> None:
    """Judge the files of a broker that has stopped cleanly.

    Args:
        broker: Which one.
        paths: Of all its files.
        partitions: Folders of the partitions that it has: topic and number.
        before: Files that waited to be deleted longer ago than such a file may wait.
    """
    every = set(paths)
    directories: dict[str, str] = {}
    for path in sorted(every):
        directory, folder, *names = path.removeprefix("/").split("/")
        if names and folder in partitions and directories.setdefault(folder, directory) != directory:
            raise Violation(8, "leak", f"broker {broker}: {folder} lies in {directories[folder]} and {directory}")
        if path in before and waits_to_go(path):
            raise Violation(8, "leak", f"broker {broker}: {path} should have been deleted long ago")
        if not (waits_to_go(path) or _is_owned(path, partitions, every)):
            raise Violation(8, "leak", f"broker {broker}: nobody owns {path}")


def _is_owned(path: str, partitions: AbstractSet[str], every: AbstractSet[str]) -> bool:
    if path.startswith("/cache/"):
        return _CHUNK.fullmatch(path) is not None
    directory, _, below = path.removeprefix("/").partition("/")
    above, _, name = below.rpartition("/")
    if not above:
        return name in _OF_DIRECTORY
    if above not in partitions:
        return False
    found = _SEGMENT.fullmatch(name)
    if found is None:
        return name in _OF_LOG
    # A snapshot is taken at the log's end too, when a log is closed; the next start but one removes it.
    return found[2] in ("log", "snapshot") or f"/{directory}/{above}/{found[1]}.log" in every
