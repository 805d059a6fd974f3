"""``tierlog copy``: the closed segments of a log directory or a bucket, into a bucket."""

from __future__ import annotations

import base64
import collections
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import ExitCode, complain, guarded
from tierlog.cli.options import ConfigOption, LayoutName, LayoutOption, Output, OutputOption, PartitionOption
from tierlog.cli.progress import ByteProgress
from tierlog.cli.tiers import config_keys, open_path
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from tierlog.upkeep.copying.bucket_copy import BucketCopy, SegmentOutcome

_WORKERS = 4


def register(app: typer.Typer) -> None:
    app.command("copy")(guarded(copy))


def copy(
    source: Annotated[
        str,
        typer.Argument(metavar="SRC", help="A broker's log directory, or a bucket of any layout.", show_default=False),
    ],
    dest: Annotated[
        str,
        typer.Argument(
            metavar="DEST",
            help="A bucket URL or folder; a local folder is made if it does not exist.",
            show_default=False,
        ),
    ],
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Only these topics. ID:TOPIC picks one of two topics of the same name."),
    ] = None,
    partition: PartitionOption = None,
    config: ConfigOption = None,
    dest_config: Annotated[
        Path | None,
        typer.Option(
            "--dest-config",
            metavar="FILE",
            help="The storage manager's keys for DEST (chunk.size, compression, layout …), given as for --config.",
        ),
    ] = None,
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="OLD=NEW",
            help="Copy the topic of id OLD under the id NEW. DEST may be SRC: then only mapped topics are copied.",
        ),
    ] = None,
    layout: LayoutOption = LayoutName.AUTO,
    output: OutputOption = Output.TEXT,
    recheck: Annotated[
        bool,
        typer.Option(
            "--recheck/--no-recheck",
            help="Read segments again that an earlier run has copied; else their descriptions and sizes decide.",
        ),
    ] = True,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, help="Segments under way at once.")] = _WORKERS,
) -> ExitCode:
    """Copy closed segments into a bucket: chunked, compressed, encrypted and named as DEST's configuration says.

    Segments keep their ids, offsets, leader epochs, indexes and bytes. Segments of a log directory have no id: they get
    one made of topic id, partition, offsets and content. Every batch is checked before its segment becomes visible in
    DEST; then the copy is read back and compared. A missing or wrong offset or time index is built anew from the log,
    as is a transaction index that a log directory lacks; the output says so. A segment with other damage is named and
    left out, and the command ends with 3. Empty segments of a compacted log are left out: the segment before each
    reaches over its offsets.

    Reads of SRC and of DEST keep to the download limit of its configuration, writes to the upload limit of DEST's.

    The same command continues a copy that was interrupted: segments that are whole in DEST are checked and left alone.
    So are those of another replica of the partition: its producer snapshots and sparse indexes are kept where this
    replica's differ, and one line says so.

    JSON: one object for each segment, with all that a broker would keep of it (`tierlog restore --from-copy` reads it),
    custom metadata in base64.
    """
    from tierlog.cli.topics import check_topic
    from tierlog.remote.storage.copy.copy_target import open_copy_target
    from tierlog.upkeep.copying.bucket_copy import BucketCopy
    from tierlog.upkeep.copying.segment_source import TopicMap

    failed = 0
    mapped = TopicMap.parse(maps or ())
    kept: collections.Counter[str] = collections.Counter()
    for topic in topics or ():
        check_topic(source, topic)
    with open_path(source, layout=layout, config=config, limited=True) as tier:
        target = open_copy_target(dest, config=config_keys(dest_config))
        try:
            is_same = tier.url.rstrip("/") == dest.rstrip("/") != ""
            if is_same and not mapped:
                raise ConfigError(f"{dest} is both SRC and DEST")
            if is_same and target.config.layout != tier.layout:
                text = f"{dest} has the layout {tier.layout}: give --dest-config with layout={tier.layout}"
                raise ConfigError(text)
            with ByteProgress("copy") as progress:
                run = BucketCopy(
                    tier,
                    target,
                    topics=topics or (),
                    partitions=partition,
                    topic_map=mapped,
                    only_mapped=is_same,
                    recheck=recheck,
                    workers=jobs,
                    on_bytes=progress.advance,
                )
                progress.set_total(run.size_bytes)
                _tell_left_out(run)
                for error in run.faults:
                    complain(str(error))
                    failed += 1
                for outcome in run:
                    failed += outcome.error is not None
                    kept.update(str(kind.value) for kind in outcome.kept)
                    _say(outcome, output)
        finally:
            target.close()
    if kept:
        told = ", ".join(f"{kind} of {count}" for kind, count in sorted(kept.items()))
        complain(f"{dest} has these segments of another replica, whose parts are kept where SRC's differ: {told}")
    return ExitCode.DATA_ERROR if failed else ExitCode.DONE


def _tell_left_out(run: BucketCopy) -> None:
    if run.internal:
        complain(f"left out: Kafka's own topics {', '.join(run.internal)}")
    if run.active:
        complain(f"left out: {len(run.active)} active segments, which a broker may still write to")
    if run.empty:
        complain(f"left out: {len(run.empty)} empty segments: the ones before them reach over their offsets")


def _say(outcome: SegmentOutcome, output: Output) -> None:
    for note in outcome.notes:
        complain(f"warning: {note}")
    if outcome.error is not None:
        complain(str(outcome.error))
    if output is Output.JSON:
        print(json.dumps(_as_dict(outcome), ensure_ascii=False))
    elif outcome.stored is not None:
        print(
            f"{outcome.stored.segment.name}: {outcome.state}, {outcome.source.size_bytes} bytes, "
            f"{outcome.stored.stored_bytes} stored"
        )
    else:
        print(f"{outcome.source.name}: {outcome.state}")


def _as_dict(outcome: SegmentOutcome) -> dict[str, object]:
    metadata = outcome.metadata
    partition = outcome.source.topic_id_partition if metadata is None else metadata.topic_id_partition
    told: dict[str, object] = {
        "state": str(outcome.state),
        "source": outcome.source.name,
        "topic": partition.topic,
        "topicId": str(partition.topic_id),
        "partition": partition.partition,
        "startOffset": outcome.source.start_offset,
        "endOffset": outcome.source.end_offset,
        "sizeBytes": outcome.source.size_bytes,
        "segmentId": str(metadata.remote_log_segment_id.id) if metadata else None,
        "object": None,
        "storedBytes": None,
        "customMetadata": None,
        "notes": list(outcome.notes),
        "kept": [kind.value for kind in outcome.kept],
        "error": None if outcome.error is None else str(outcome.error),
    }
    if metadata is not None:
        told["maxTimestamp"] = metadata.max_timestamp_ms
        told["brokerId"] = metadata.broker_id
        told["eventTimestamp"] = metadata.event_timestamp_ms
        told["leaderEpochs"] = {str(epoch): start for epoch, start in metadata.segment_leader_epochs.items()}
        told["txnIndexEmpty"] = metadata.txn_idx_empty
    if outcome.stored is not None:
        custom = outcome.stored.custom_metadata
        told["object"] = outcome.stored.segment.name
        told["storedBytes"] = outcome.stored.stored_bytes
        told["customMetadata"] = None if custom is None else base64.b64encode(custom).decode("ascii")
    return told
