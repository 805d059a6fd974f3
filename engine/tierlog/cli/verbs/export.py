"""``tierlog export``: a topic as a Kafka log directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import complain
from tierlog.cli.options import (
    CommandConfigOption,
    ConfigOption,
    DirectoryIdOption,
    FailOnDataLossOption,
    LayoutName,
    LayoutOption,
    LogStartOption,
    MetadataOption,
    NodeIdOption,
    Output,
    OutputOption,
    PartitionOption,
    PathArgument,
)
from tierlog.cli.stderr import ByteProgress
from tierlog.cli.tiers import check_command_config, command_keys, config_keys
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from tierlog.remote.api import Uuid
    from tierlog.upkeep import ExportedPartition, TargetCluster


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
    node_id: NodeIdOption = None,
    topic_id: Annotated[
        str | None,
        typer.Option(
            "--topic-id",
            metavar="ID",
            help="With --for-cluster: the topic's id there, as `kafka-topics --describe` prints it.",
        ),
    ] = None,
    directory_id: DirectoryIdOption = None,
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

    With --last-segment the broker gets the end of each log and the leader epochs of all of it: enough for a broker that
    finds the rest in the tier by its metadata (`tierlog restore`).
    """
    from tierlog.cli.tiers import check_topic
    from tierlog.scan.scan_request import parse_log_starts
    from tierlog.upkeep import export as export_topic

    check_command_config(metadata, command_config)
    check_topic(path, topic)
    with ByteProgress("export") as progress:
        result = export_topic(
            path,
            topic,
            dest,
            partitions=partition or None,
            config=config_keys(config),
            layout=layout,
            metadata=metadata or None,
            metadata_client=command_keys(command_config),
            log_start_offsets=parse_log_starts(log_start or ()),
            fail_on_data_loss=fail_on_data_loss,
            last_segment=last_segment,
            cluster=parsed_target(for_cluster, node_id, topic_id, directory_id),
            on_partition=lambda done: _say(done, output),
            on_bytes=progress.step,
        )
    for text in result.notes:
        complain(f"note: {text}")


def parsed_target(
    cluster_id: str | None, node_id: int | None, topic_id: str | None, directory_id: str | None
) -> TargetCluster | None:
    """Return the target cluster of the options. Raises ConfigError: one of the options lacks the others
    that it needs.
    """
    from tierlog.upkeep import TargetCluster

    if cluster_id is None:
        if node_id is not None or topic_id is not None or directory_id is not None:
            raise ConfigError("--node-id, --topic-id and --directory-id go with --for-cluster")
        return None
    if node_id is None:
        raise ConfigError("--for-cluster needs --node-id: a log directory is one broker's")
    return TargetCluster(
        cluster_id, node_id, parsed_id("--topic-id", topic_id), parsed_id("--directory-id", directory_id)
    )


def parsed_id(option: str, text: str | None) -> Uuid | None:
    """Return the id that an option gives. Raises ConfigError: it is none."""
    from tierlog.remote.api import Uuid

    try:
        return None if text is None else Uuid.from_text(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text!r:.40}: {error}") from None


def _say(done: ExportedPartition, output: Output) -> None:
    for warning in done.warnings:
        complain(f"warning: {warning}")
    told = {
        "folder": done.folder,
        "segments": done.segments,
        "cut": done.cut,
        "sizeBytes": done.size_bytes,
        "lastLeaderEpoch": done.last_leader_epoch,
    }
    cut_text = f", {done.cut} of them cut" if done.cut else ""
    output.show(told, f"{done.folder}: {done.segments} segments{cut_text}, last leader epoch {done.last_leader_epoch}")
