"""The export of a topic: its partitions as folders of a broker's log directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from tierlog.arguments import require_flag, require_ints, require_path, require_text
from tierlog.errors import ConfigError, StoreError
from tierlog.log.formats.segment_files import LOCK
from tierlog.log.local.log_folder import lock_directory
from tierlog.opening import Config, Metadata, Path, given_machine, open_path
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files
from tierlog.scan.history import TierHistory
from tierlog.scan.scan_request import TopicName, log_starts_by_topic
from tierlog.upkeep.exporting.broker_directory import BrokerDirectory, TargetCluster
from tierlog.upkeep.exporting.partition_export import ExportedPartition, PartitionExport

LOCK_NAME: Final = ".tierlog-export.lock"
#: Beside the logs: indexes (about one byte in 400), snapshots, checkpoints, and the file system's own data.
SPARE_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The partitions that an export wrote, and what to know of them.

    Attributes:
        partitions: By number.
        notes: Warnings for a cluster that goes on writing to these logs: leader epochs, open transactions.
    """

    partitions: tuple[ExportedPartition, ...]
    notes: tuple[str, ...]


def export(
    path: Path,
    topic: str,
    dest: Path,
    *,
    partitions: Iterable[int] | None = None,
    config: Config | None = None,
    layout: str = "auto",
    metadata: Metadata | None = None,
    metadata_client: Mapping[str, str] | None = None,
    log_start_offsets: Mapping[int | None, int] | None = None,
    fail_on_data_loss: bool = True,
    last_segment: bool = False,
    cluster: TargetCluster | None = None,
    on_partition: Callable[[ExportedPartition], None] = lambda _: None,
    on_bytes: Callable[[int, int], None] = lambda _done, _all: None,
    machine: Machine | None = None,
) -> ExportResult:
    """Write the folders ``<dest>/<topic>-<partition>`` as a broker has them: logs byte for byte, indexes, snapshots,
    leader epochs and topic id. The same call continues an export that was interrupted.

    Args:
        path: A bucket, a folder in it, or a broker's log directory.
        topic: Its name; ``<topic id>:<topic>`` where a bucket holds two topics of that name.
        dest: A local folder; made if it does not exist.
        partitions: The partitions to export; None for all.
        config: As for ``tierlog.read``.
        layout: As for ``tierlog.read``.
        metadata: As for ``tierlog.read``.
        metadata_client: As for ``tierlog.read``.
        log_start_offsets: Log start offsets by partition, and under None that of the others. Records below were
            deleted, which a bucket alone cannot show.
        fail_on_data_loss: False names missing offsets and wrong checksums in the warnings and goes on.
        last_segment: Write only the last segment of each partition, with the leader epochs of all: enough for a broker
            that reads the others from the tier.
        cluster: Makes ``dest`` a whole log directory of a broker of this cluster, as a clean stop leaves it.
        on_partition: Called with each partition as soon as it is written.
        on_bytes: Called with the bytes of logs that were done since the last call, and with the bytes of all logs.
        machine: The machine that the job runs on; this machine by default.

    Returns:
        The partitions that were written.

    Raises:
        TypeError: an argument is of another type; it is named. ConfigError: also where ``dest`` holds logs that are not
        of this export, or another export writes to it. DataLossError: offsets are missing. UnknownTopicError,
        CorruptDataError, StoreError and their kinds: StoreUnavailableError where a broker has ``dest`` open.
    """
    name, folder = require_text("topic", topic), require_path("dest", dest)
    assigned = None if partitions is None else {name: require_ints("partitions", partitions)}
    require_flag("fail_on_data_loss", fail_on_data_loss)
    require_flag("last_segment", last_segment)
    machine = given_machine(machine)
    directory = None if cluster is None else BrokerDirectory(machine, folder, cluster)
    with open_path(
        path, config=config, layout=layout, metadata=metadata, metadata_client=metadata_client, machine=machine
    ) as tier:
        named = [each for each in tier.topics() if each.name == TopicName.parse(name).name] if log_start_offsets else []
        history = TierHistory(tier, log_start_offsets=log_starts_by_topic(log_start_offsets or {}, named))
        exports = [
            PartitionExport(
                tier,
                machine.files,
                each,
                f"{folder}/{each.topic}-{each.partition}",
                fail_on_data_loss=fail_on_data_loss,
                topic_id=None if cluster is None else cluster.topic_id,
                only_last=last_segment,
            )
            for each in history.partitions(None if assigned else [name], assigned=assigned)
        ]
        total_bytes = sum(each.size_bytes for each in exports)
        written = []
        with _locked(machine.files, folder):
            _check_space(machine.files, folder, exports)
            if directory is not None:
                directory.prepare()
            for each in exports:
                for size_bytes in each.run():
                    on_bytes(size_bytes, total_bytes)
                written.append(each.result())
                on_partition(written[-1])
            if directory is not None:
                directory.finish([each.extent for each in exports])
        notes = tuple(text for each in exports for text in each.cautions())
    return ExportResult(partitions=tuple(written), notes=notes)


@contextmanager
def _locked(files: Files, dest: str) -> Iterator[None]:
    """A block that locks the destination: two exports would write into one temporary file, and a broker has its own
    logs there.
    """
    files.make_directories(dest)
    lock = files.try_lock(f"{dest}/{LOCK_NAME}")
    if lock is None:
        raise ConfigError(f"another export is writing to {dest}")
    with ExitStack() as held:
        held.enter_context(lock)
        if files.find(f"{dest}/{LOCK}") is not None:
            held.enter_context(lock_directory(files, dest))
        yield


def _check_space(files: Files, dest: str, exports: Sequence[PartitionExport]) -> None:
    missing = sum(each.missing_bytes() for each in exports)
    needed = missing + missing // 100 + SPARE_BYTES if missing else 0
    free = files.free_bytes(dest)
    if needed > free:
        raise StoreError(
            f"{dest}: about {needed} bytes are needed, {free} are free: {missing} for the logs, 1 % of that for "
            f"indexes, and {SPARE_BYTES >> 20} MiB to spare for small files and the file system"
        )
