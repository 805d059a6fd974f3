"""``tierlog export``: a topic as a Kafka log directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import complain, guarded
from tierlog.cli.options import (
    CommandConfigOption,
    ConfigOption,
    FailOnDataLossOption,
    LayoutName,
    LayoutOption,
    LogStartOption,
    MetadataOption,
    Output,
    OutputOption,
    PartitionOption,
    PathArgument,
)
from tierlog.cli.progress import ByteProgress
from tierlog.cli.tiers import open_path
from tierlog.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from tierlog.remote.api import Uuid
    from tierlog.runtime.machine.files import Files
    from tierlog.upkeep.exporting.broker_directory import TargetCluster
    from tierlog.upkeep.exporting.partition_export import PartitionExport

LOCK_NAME = ".tierlog-export.lock"
#: Beside the logs: indexes (about one byte in 400), snapshots, checkpoints, and what a file system needs itself.
SPARE_BYTES = 16 << 20


def register(app: typer.Typer) -> None:
    app.command("export")(guarded(export))


def export(
    path: PathArgument,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="One topic. ID:TOPIC picks one of two topics of the same name.")
    ],
    dest: Annotated[Path, typer.Argument(metavar="DEST", help="A folder; made if it does not exist.", file_okay=False)],
    partition: PartitionOption = None,
    config: ConfigOption = None,
    layout: LayoutOption = LayoutName.AUTO,
    metadata: MetadataOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TEXT,
    log_start: LogStartOption = None,
    fail_on_data_loss: FailOnDataLossOption = True,
    last_segment: Annotated[
        bool,
        typer.Option(
            "--last-segment",
            help="Only the last segment of each partition: the others stay in the tier, for a cluster that reads it.",
        ),
    ] = False,
    for_cluster: Annotated[
        str | None,
        typer.Option("--for-cluster", metavar="ID", help="Make DEST a log directory of a broker of this cluster."),
    ] = None,
    node_id: Annotated[
        int | None, typer.Option("--node-id", metavar="N", help="With --for-cluster: the broker's node.id.")
    ] = None,
    topic_id: Annotated[
        str | None,
        typer.Option(
            "--topic-id",
            metavar="ID",
            help="With --for-cluster: the topic's id there, as `kafka-topics --describe` prints it.",
        ),
    ] = None,
    directory_id: Annotated[
        str | None,
        typer.Option(
            "--directory-id",
            metavar="ID",
            help="With --for-cluster: directory.id in the meta.properties of the log directory that DEST replaces.",
        ),
    ] = None,
) -> None:
    """Write DEST/TOPIC-N/ as a broker has it: logs byte for byte, indexes, snapshots, leader epochs, topic id.

    Whole segments keep their names and bytes. Of a segment that counts only in part (its tail was abandoned by a later
    leader, or another upload overlaps it) a cut log is written, named by its first offset that counts, with indexes
    built anew. Every checksum is checked on the way.

    A file gets its name when it is whole, so that the same command continues an interrupted export.

    With --for-cluster DEST is a whole log directory of one broker, as a clean stop leaves it: meta.properties, offset
    checkpoints and the file of the clean stop too. Several topics may be exported into one DEST, one after the other.

    The output has the last leader epoch of each log, which a leader of it needs at the least, and names transactions
    that are open where the log ends.

    With --last-segment the broker gets the end of each log and the leader epochs of all of it: enough for one that
    reads the rest from the tier, where its metadata (`tierlog restore`) says that it is.
    """
    from tierlog.cli.topics import TopicChoice, check_topic
    from tierlog.runtime.machine import Machine
    from tierlog.scan.history import TierHistory
    from tierlog.scan.log_starts import parse_log_starts
    from tierlog.upkeep.exporting.broker_directory import BrokerDirectory
    from tierlog.upkeep.exporting.partition_export import PartitionExport

    check_topic(path, topic)
    machine = Machine()
    files = machine.files
    target = parsed_target(for_cluster, node_id, topic_id, directory_id)
    directory = None if target is None else BrokerDirectory(machine, str(dest), target)
    with open_path(path, layout=layout, config=config, metadata=metadata, command_config=command_config) as tier:
        starts = parse_log_starts(log_start, TopicChoice((topic,)).of_tier(tier.topics())) if log_start else {}
        history = TierHistory(tier, log_start_offsets=starts)
        assigned = {topic: partition} if partition else None
        exports = [
            PartitionExport(
                tier,
                files,
                each,
                str(dest / f"{each.topic}-{each.partition}"),
                fail_on_data_loss=fail_on_data_loss,
                topic_id=None if target is None else target.topic_id,
                only_last=last_segment,
            )
            for each in history.partitions(None if assigned else [topic], assigned=assigned)
        ]
        with _locked(files, dest):
            _check_space(files, dest, exports)
            if directory is not None:
                directory.prepare()
            with ByteProgress("export", sum(each.size_bytes for each in exports)) as progress:
                for each in exports:
                    for size_bytes in each.run():
                        progress.advance(size_bytes)
                    _say(each, output)
            if directory is not None:
                directory.finish([each.extent for each in exports])
            for caution in [text for each in exports for text in each.cautions()]:
                complain(f"note: {caution}")


def parsed_target(
    cluster_id: str | None, node_id: int | None, topic_id: str | None, directory_id: str | None
) -> TargetCluster | None:
    """The target cluster of the options. Raises ConfigError: one of the options lacks the others that it needs."""
    from tierlog.upkeep.exporting.broker_directory import TargetCluster

    if cluster_id is None:
        if node_id is not None or topic_id is not None or directory_id is not None:
            raise ConfigError("--node-id, --topic-id and --directory-id go with --for-cluster")
        return None
    if node_id is None:
        raise ConfigError("--for-cluster needs --node-id: a log directory is one broker's")
    return TargetCluster(
        cluster_id, node_id, _parsed_id("--topic-id", topic_id), _parsed_id("--directory-id", directory_id)
    )


def _parsed_id(option: str, text: str | None) -> Uuid | None:
    from tierlog.remote.api import Uuid

    try:
        return None if text is None else Uuid.from_text(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text!r:.40}: {error}") from None


@contextmanager
def _locked(files: Files, dest: Path) -> Iterator[None]:
    """A block that locks the destination: two exports would write into one temporary file."""
    files.make_directories(str(dest))
    lock = files.try_lock(str(dest / LOCK_NAME))
    if lock is None:
        raise ConfigError(f"another export is writing to {dest}")
    with lock:
        yield


def _check_space(files: Files, dest: Path, exports: Sequence[PartitionExport]) -> None:
    missing = sum(each.missing_bytes() for each in exports)
    needed = missing + missing // 100 + SPARE_BYTES if missing else 0
    free = files.free_bytes(str(dest))
    if needed > free:
        raise StoreError(
            f"{dest}: about {needed} bytes are needed, {free} are free: {missing} for the logs, 1 % of that for "
            f"indexes, and {SPARE_BYTES >> 20} MiB to spare for small files and the file system"
        )


def _say(done: PartitionExport, output: Output) -> None:
    for warning in done.warnings:
        complain(f"warning: {warning}")
    cut = sum(not each.whole for each in done.segments)
    if output is Output.JSON:
        told = {
            "folder": done.folder,
            "segments": len(done.segments),
            "cut": cut,
            "sizeBytes": done.size_bytes,
            "lastLeaderEpoch": done.last_leader_epoch,
        }
        print(json.dumps(told, ensure_ascii=False))
    else:
        cut_text = f", {cut} of them cut" if cut else ""
        print(f"{done.folder}: {len(done.segments)} segments{cut_text}, last leader epoch {done.last_leader_epoch}")
