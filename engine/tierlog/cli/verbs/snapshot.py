"""``tierlog snapshot``: remote log metadata in one file, written and shown."""

from __future__ import annotations

import enum
import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import ExitCode, complain, one_line
from tierlog.cli.options import CommandConfigOption, Output, OutputOption
from tierlog.cli.segments import epochs_text, metadata_fields, table, time_text
from tierlog.cli.tiers import is_file, read_metadata

if TYPE_CHECKING:
    from tierlog.remote.api import RemoteLogSegmentMetadata, TopicIdPartition
    from tierlog.remote.metadata.segment_table import SegmentTable
    from tierlog.remote.metadata.snapshots.snapshot_file import SnapshotState
    from tierlog.runtime.machine import Machine

_HEADINGS = ("START", "END", "BYTES", "LAST TIME", "EPOCHS", "STATE", "SEGMENT")
_NUMBERS = 3


class SnapshotForm(enum.StrEnum):
    """Values of --format."""

    COLUMNAR = "columnar"
    KAFKA_3 = "kafka-3"
    KIP = "kip"


def snapshot(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A snapshot, a log directory with __remote_log_metadata-N (or one such folder), or HOST:PORT of a "
            "running Kafka. A snapshot is a columnar one, or remote_log_snapshot or remote_log_flat_file in a folder "
            "named TOPIC-N.",
            show_default=False,
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FILE|DIR",
            help="Write a snapshot: a file, or (kafka-3, kip) a folder that gets one of each partition.",
        ),
    ] = None,
    form: Annotated[
        SnapshotForm,
        typer.Option(
            "--format",
            help="Of what --to writes: columnar is Tierlog's own; kafka-3 is the remote_log_snapshot of Kafka 3.x, kip "
            "the flat file of KIP-405's text.",
        ),
    ] = SnapshotForm.COLUMNAR,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> ExitCode:
    """Show remote log metadata, or write it into a snapshot.

    Without --to every segment is shown, in all states but DELETE_SEGMENT_FINISHED. JSON: one object for each segment,
    with the names of `ls`, "state" (the KIP's name) and "customMetadata" (base64).

    --metadata of other commands reads a columnar snapshot. A snapshot that was written from a topic does not say how
    far the topic was read: a metadata manager that finds it reads the topic anew.

    The other forms cannot hold everything. A value without a field is refused where a reader would miss it (custom
    metadata in kip), and named on stderr where it would not.
    """
    from tierlog.runtime.machine import Machine

    machine = Machine()
    with ExitStack() as held:
        table, state = _open(source, command_config, machine, held)
        if to is None:
            _show(table, state, output)
        elif form is SnapshotForm.COLUMNAR:
            from tierlog.remote.metadata.snapshots.snapshot_file import write_snapshot

            write_snapshot(to, table, state, machine=machine)
            _say(f"{table.figures.segments} segments of {len(table.partitions())} partitions written to {to}")
        else:
            _write_folders(to, table, state, form, machine)
    return ExitCode.DONE


def _open(
    source: str, command_config: Path | None, machine: Machine, held: ExitStack
) -> tuple[SegmentTable, SnapshotState]:
    """Read the source into a table; ``held`` closes the table."""
    from tierlog.remote.metadata.segment_table import SegmentTable
    from tierlog.remote.metadata.snapshots.partition_snapshots import is_partition_snapshot, read_partition_file
    from tierlog.remote.metadata.snapshots.snapshot_file import SnapshotState, read_snapshot

    if not is_file(source):
        return held.enter_context(read_metadata([source], command_config)).table, SnapshotState()
    if is_partition_snapshot(source):
        table = held.enter_context(SegmentTable(machine=machine))
        read_partition_file(str(Path(source).absolute()), table, files=machine.files)
        return table, SnapshotState()
    table, state = read_snapshot(source, machine=machine)
    return held.enter_context(table), state


def _write_folders(to: str, table: SegmentTable, state: SnapshotState, form: SnapshotForm, machine: Machine) -> None:
    from tierlog.remote.metadata.snapshots.partition_snapshots import PartitionForm, write_partition_folder

    kind = PartitionForm.KAFKA if form is SnapshotForm.KAFKA_3 else PartitionForm.KIP
    lost = ["the highest offsets that only deleted segments had"]
    if form is SnapshotForm.KIP:
        lost.append("the brokers of segments")
    if state.removals:
        lost.append(f"{len(state.removals)} partition removals")
    positions = table.positions()
    for partition, (metadata_partition, offset) in sorted(positions.items()):
        write_partition_folder(
            to,
            partition,
            table.list(partition),
            form=kind,
            metadata_partition=metadata_partition,
            offset=offset,
            files=machine.files,
        )
    complain(f"note: {form} has no field for {', '.join(lost)}")
    _say(f"{table.figures.segments} segments of {len(positions)} partitions written to {to}")


def _say(text: str) -> None:
    print(one_line(text))


def _show(table: SegmentTable, state: SnapshotState, output: Output) -> None:
    if output is Output.TEXT and state.partition_count:
        places = ", ".join(f"{place}:{offset}" for place, offset in sorted(state.positions.items()))
        _say(f"of the topic {state.identity}, {state.partition_count} partitions, read up to {places or 'nothing'}")
        for removal in state.removals:
            _say(f"{removal.metadata.topic_id_partition}  {removal.metadata.state.name}")
    for partition in sorted(table.partitions(), key=lambda each: (each.topic, each.topic_id, each.partition)):
        segments = sorted(table.list(partition), key=lambda each: (each.start_offset, each.end_offset))
        if output is Output.JSON:
            for segment in segments:
                print(json.dumps(metadata_fields(segment), ensure_ascii=False))
        else:
            _print_text(partition, segments)


def _print_text(partition: TopicIdPartition, segments: list[RemoteLogSegmentMetadata]) -> None:
    size = sum(segment.segment_size_in_bytes for segment in segments)
    _say(f"{partition}  id {partition.topic_id}  {len(segments)} segments  {size} bytes")
    for line in table([_HEADINGS, *map(_cells, segments)], numbers=_NUMBERS) if segments else ():
        print(f"  {line}")


def _cells(segment: RemoteLogSegmentMetadata) -> tuple[str, ...]:
    return (
        str(segment.start_offset),
        str(segment.end_offset),
        str(segment.segment_size_in_bytes),
        time_text(segment.max_timestamp_ms),
        epochs_text(segment.segment_leader_epochs),
        segment.state.name,
        str(segment.remote_log_segment_id.id),
    )
