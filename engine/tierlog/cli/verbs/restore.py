"""``tierlog restore``: the metadata of a bucket's segments, from the bucket alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import ExitCode, complain, one_line
from tierlog.cli.options import (
    CommandConfigOption,
    ConfigOption,
    DirectoryIdOption,
    LayoutName,
    LayoutOption,
    NodeIdOption,
    OnlyTopicsArgument,
    Output,
    OutputOption,
    PartitionOption,
)
from tierlog.cli.segments import epochs_text, metadata_fields, time_text
from tierlog.cli.tiers import command_keys, config_keys
from tierlog.cli.verbs.export import parsed_id, parsed_target
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from tierlog.remote.api import RemoteLogSegmentMetadata, Uuid
    from tierlog.upkeep import MovedTopic, RestoredPartition, RestoredSegment, RestorePlace, RestoreResult
    from tierlog.upkeep.restoring.bucket_metadata import LeftOutSegment

_COPY_BYTES_MAX = 1 << 30
_QUIET_MINUTES = 10
_PARTITIONS = 50


def restore(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="The bucket, as the storage manager has it: a URL or folder, key.prefix below it. With --from-copy "
            "what `tierlog copy` printed; - is stdin.",
            show_default=False,
        ),
    ],
    topics: OnlyTopicsArgument = None,
    partition: PartitionOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be restored; the default without --to.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FILE|DIR/|HOST:PORT",
            help="Where the metadata goes: a new snapshot file, a new folder of __remote_log_metadata-N (an empty one, "
            "or a path that ends in /), or the topic of a running Kafka (its bootstrap servers).",
        ),
    ] = None,
    from_copy: Annotated[
        bool, typer.Option("--from-copy", help="PATH is what `tierlog copy --output json` printed: register that.")
    ] = False,
    maps: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OLD=NEW", help="Register topic id OLD as NEW, of a topic that was made anew."),
    ] = None,
    quiet_minutes: Annotated[
        float,
        typer.Option(
            "--quiet-minutes",
            metavar="N",
            min=0,
            help="Refuse if an object is younger: nothing in a bucket keeps a broker from writing. 0 never refuses.",
        ),
    ] = _QUIET_MINUTES,
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="Of the metadata topic that the folder is for.")
    ] = _PARTITIONS,
    topic_id: Annotated[
        str | None,
        typer.Option("--topic-id", metavar="ID", help="For a folder: the id of __remote_log_metadata in its cluster."),
    ] = None,
    for_cluster: Annotated[
        str | None,
        typer.Option("--for-cluster", metavar="ID", help="Make a folder the log directory of a broker there."),
    ] = None,
    node_id: NodeIdOption = None,
    directory_id: DirectoryIdOption = None,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    layout: LayoutOption = LayoutName.AUTO,
    output: OutputOption = Output.TEXT,
) -> ExitCode:
    """Rebuild the remote log metadata of a cluster from its bucket alone.

    Every whole segment is registered as COPY_SEGMENT_FINISHED, dead branches and duplicates among them, with the
    offsets, size, time, leader epochs and custom metadata (by custom.metadata.fields.include of --config) that the lost
    topic had. The offsets that readers will see of each stand beside it. Segments that lack an object or cannot be
    read are named and left out; then the command ends with 1.

    A bucket does not show the broker and time of COPY_SEGMENT_FINISHED (those of the description, and of the last
    object, stand there), and deletions that had begun but removed nothing yet: such segments come back.

    JSON: one object for each segment, with the names of `ls` and "state": COPY_SEGMENT_FINISHED, or null and "reason".
    """
    from tierlog.cli.tiers import check_topic
    from tierlog.upkeep import RestorePlace
    from tierlog.upkeep import restore as restore_metadata
    from tierlog.upkeep.copying.segment_source import TopicMap

    for topic in topics or ():
        check_topic(path, topic)
    cluster = parsed_target(for_cluster, node_id, topic_id if for_cluster else None, directory_id)
    place = RestorePlace(
        partition_count=partitions,
        topic_id=parsed_id("--topic-id", topic_id),
        cluster=cluster,
        client_keys=command_keys(command_config),
    )
    writes = to is not None and not dry_run
    if from_copy:
        chosen = topics or partition or maps or config or layout is not LayoutName.AUTO
        if chosen or quiet_minutes != _QUIET_MINUTES:
            text = "TOPIC, --partition, --map, --quiet-minutes, --config and --layout are of a bucket"
            raise ConfigError(f"--from-copy registers all that was copied: {text}")
        return _register_copied(path, to, place, output, dry_run=dry_run)
    result = restore_metadata(
        path,
        topics or (),
        to=to,
        place=place,
        dry_run=dry_run,
        partitions=partition or None,
        topic_map=TopicMap.parse(maps or ()),
        quiet_minutes=quiet_minutes,
        config=config_keys(config),
        layout=layout,
        on_partition=lambda found: _say(found, output),
    )
    for warning in result.warnings:
        complain(f"warning: {warning}")
    for moved in result.moved:
        _tell_moved(moved, path, config)
    if output is Output.TEXT:
        left = f", {len(result.left_out)} left out" if result.left_out else ""
        counted = f"{result.segments} segments of {result.partitions} partitions, {result.size_bytes} bytes{left}"
        print(one_line(f"{counted}: {_told(result, to if writes else None)}"))
    return ExitCode.FAULTS_FOUND if result.left_out else ExitCode.DONE


def _register_copied(path: str, to: str | None, place: RestorePlace, output: Output, *, dry_run: bool) -> ExitCode:
    """Restore the segments that ``tierlog copy`` printed, without a look at a bucket."""
    from tierlog.runtime.machine import Machine
    from tierlog.upkeep import restore_copied

    def say(metadata: RemoteLogSegmentMetadata) -> None:
        offsets = f"{metadata.start_offset}-{metadata.end_offset}"
        output.show(metadata_fields(metadata), f"{metadata.remote_log_segment_id}  {offsets}")

    data = Machine().files.read_stream("/dev/stdin" if path == "-" else path, limit_bytes=_COPY_BYTES_MAX)
    lines = data.decode("utf-8", "replace").split("\n")
    result = restore_copied(lines, to=to, place=place, dry_run=dry_run, on_segment=say)
    for name, reason in result.left_out.items():
        complain(f"left out: {name}: {reason}")
    if output is Output.TEXT:
        print(one_line(f"{result.segments} segments: {_told(result, None if dry_run else to)}"))
    return ExitCode.FAULTS_FOUND if result.left_out else ExitCode.DONE


def _told(result: RestoreResult, to: str | None) -> str:
    """Return the end of the last line. ``to`` is None where nothing is to be written."""
    if to is None:
        return "would be registered (nothing was written)"
    if result.written:
        return f"written to {to}" if result.written == result.segments else f"{result.written} of them written to {to}"
    return f"nothing was written: {to} knows them all" if result.segments else f"no segment was written to {to}"


def _tell_moved(moved: MovedTopic, path: str, config: Path | None) -> None:
    """Print the commands that a mapped topic still needs."""
    where = f"{moved.segments} segments of {moved.topic} lie under its old id {moved.old_id}"
    copy = f"tierlog copy {path} {path} {moved.old_id}:{moved.topic} --map {moved.old_id}={moved.new_id}"
    if config is not None:
        copy += f" --config {config} --dest-config {config}"
    if moved.layout == "kafka":
        complain(f"note: {where}: Tierlog's storage manager finds them there by their custom metadata")
    elif moved.layout == "local-tiered":
        complain(f"note: {where}, where LocalTieredStorage does not look: rename their folders first")
    else:
        complain(
            f"note: {where}: Tierlog's storage manager finds them by their custom metadata; Aiven's plugin looks below "
            f"{moved.new_id} only, and needs `{copy}` first, then this command again"
        )


def _say(found: RestoredPartition, output: Output) -> None:
    """Print one partition."""
    spans: dict[Uuid, list[tuple[int, int]]] = {}
    for span in found.history.spans if found.history else ():
        segment_id = span.segment.metadata.remote_log_segment_id.id
        spans.setdefault(segment_id, []).append((span.first_offset, span.end_offset_exclusive - 1))
    if output is Output.JSON:
        for segment in found.segments:
            told = _as_dict(segment, spans.get(segment.metadata.remote_log_segment_id.id, []))
            print(json.dumps(told | {"layout": segment.stored.layout}, ensure_ascii=False))
        for left in found.left_out:
            print(json.dumps(_left_as_dict(left), ensure_ascii=False))
    else:
        _print_text(found, spans)
    for left in found.left_out:
        complain(f"left out: {left.name}: {left.reason}")
    for warning in found.history.warnings if found.history else ():
        complain(f"warning: {warning}")


def _as_dict(segment: RestoredSegment, spans: Sequence[tuple[int, int]]) -> dict[str, object]:
    stored = segment.stored
    return metadata_fields(segment.metadata) | {
        "object": stored.name,
        "firstOffset": spans[0][0] if spans else None,
        "lastOffset": spans[-1][1] if spans else None,
        "referenced": bool(spans),
        "visible": [list(span) for span in spans],
        "storedBytes": segment.stored_bytes,
        "startedTimestamp": segment.started_ms,
        "lastModified": stored.last_modified_ms,
        "compression": stored.compression,
        "encryptionKeyId": stored.encryption.key_id if stored.encryption else None,
    }


def _left_as_dict(left: LeftOutSegment) -> dict[str, object]:
    return {
        "topic": left.partition.topic,
        "topicId": str(left.partition.topic_id),
        "partition": left.partition.partition,
        "segment": str(left.segment_id) if left.segment_id else None,
        "object": left.name,
        "startOffset": left.start_offset if left.start_offset >= 0 else None,
        "state": None,
        "reason": left.reason,
    }


def _print_text(found: RestoredPartition, spans: Mapping[Uuid, Sequence[tuple[int, int]]]) -> None:
    partition, history = found.topic_id_partition, found.history
    if history is None:
        return
    latest = history.lineage.epochs.latest
    last_epoch = 0 if latest is None else latest.epoch
    print(
        one_line(
            f"{partition}  id {partition.topic_id}  readers will see offsets {history.earliest_offset} to "
            f"{history.end_offset_exclusive - 1}  {len(found.segments)} segments  last leader epoch {last_epoch}"
        )
    )
    for segment in found.segments:
        metadata = segment.metadata
        seen = spans.get(metadata.remote_log_segment_id.id, ())
        whole = [(metadata.start_offset, metadata.end_offset)]
        shown = "live" if list(seen) == whole else ",".join(f"cut {a}-{b}" for a, b in seen) or "unreferenced"
        epochs, time = epochs_text(metadata.segment_leader_epochs), time_text(metadata.max_timestamp_ms)
        print(
            f"  {metadata.start_offset}-{metadata.end_offset}  {metadata.segment_size_in_bytes} bytes  until {time}  "
            f"epochs {epochs}  {shown}  {metadata.remote_log_segment_id.id}"
        )
    for gap in history.gaps:
        print(f"  GAP: no segment holds offsets {gap.first_offset} to {gap.end_offset_exclusive - 1}")
