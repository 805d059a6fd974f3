"""``tierlog copy``: the closed segments of a log directory or a bucket, into a bucket."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import ExitCode, complain
from tierlog.cli.options import (
    ConfigOption,
    DryRunOption,
    LayoutName,
    LayoutOption,
    LedgerOption,
    OnlyTopicsArgument,
    Output,
    OutputOption,
    PartitionOption,
    SparkOption,
)
from tierlog.cli.segments import base64_text, metadata_fields
from tierlog.cli.stderr import ByteProgress
from tierlog.cli.tiers import config_keys

if TYPE_CHECKING:
    from tierlog.upkeep import SegmentOutcome

_WORKERS = 4


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
    topics: OnlyTopicsArgument = None,
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
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", min=1, help=f"Segments under way at once; by default {_WORKERS}."),
    ] = None,
    spark: SparkOption = None,
    ledger: LedgerOption = None,
    dry_run: DryRunOption = False,
) -> ExitCode:
    """Copy closed segments into a bucket: chunked, compressed, encrypted and named as DEST's configuration says.

    Segments keep their ids, offsets, leader epochs, indexes and bytes. Segments of a log directory have no id: they get
    one made of topic id, partition, offsets and content. Every batch is checked before its segment becomes visible in
    DEST; then the copy is read back and compared. A missing or wrong offset or time index is built anew from the log,
    as is a transaction index that a log directory lacks; the output says so. A segment with other damage is named and
    left out, and the command ends with 3. Empty segments of a compacted log are left out: the segment before each
    reaches over its offsets.

    Reads of SRC and of DEST obey the download limit of its configuration, writes the upload limit of DEST's.

    The same command continues a copy that was interrupted: segments that are whole in DEST are checked and left alone.
    So are those of another replica of the partition: its producer snapshots and sparse indexes stay where this
    replica's differ, and one line says so.

    With --ledger, what it has is neither looked at in SRC nor in DEST again, and told again. With --spark, each of
    Spark's executors obeys the limits by itself.

    JSON: one object for each segment, with all that a broker would store about it (`tierlog restore --from-copy` reads
    it), custom metadata in base64.
    """
    from tierlog.cli.spark_session import spark_executor, tell_estimate
    from tierlog.cli.tiers import check_topic
    from tierlog.upkeep import copy as copy_segments
    from tierlog.upkeep.copying.segment_source import TopicMap

    for topic in topics or ():
        check_topic(source, topic)
    tell = partial(tell_estimate, "copy", output=output, is_answer=dry_run, is_told=spark is not None)
    master = None if dry_run else spark
    with spark_executor(master, "copy", jobs) as executor, ByteProgress("copy") as progress:
        result = copy_segments(
            source,
            dest,
            topics or (),
            partitions=partition,
            config=config_keys(config),
            dest_config=config_keys(dest_config),
            topic_map=TopicMap.parse(maps or ()),
            layout=layout,
            recheck=recheck,
            workers=jobs or _WORKERS,
            executor=executor,
            ledger=ledger,
            dry_run=dry_run,
            on_estimate=tell,
            on_segment=lambda outcome: _say(outcome, output),
            on_bytes=progress.step,
        )
    for error in result.faults:
        complain(str(error))
    if result.internal:
        complain(f"left out: Kafka's own topics {', '.join(result.internal)}")
    if result.active:
        complain(f"left out: {result.active} active segments, which a broker may still write to")
    if result.empty:
        complain(f"left out: {result.empty} empty segments: the ones before them reach over their offsets")
    if result.kept:
        told = ", ".join(f"{kind} of {count}" for kind, count in result.kept.items())
        complain(f"{dest} has these segments of another replica, whose parts are kept where SRC's differ: {told}")
    return ExitCode.DONE if result.is_whole else ExitCode.DATA_ERROR


def _say(outcome: SegmentOutcome, output: Output) -> None:
    for note in outcome.notes:
        complain(f"warning: {note}")
    if outcome.error is not None:
        complain(str(outcome.error))
    text = f"{outcome.source.name}: {outcome.state}"
    if outcome.stored is not None:
        sizes = f"{outcome.source.size_bytes} bytes, {outcome.stored.stored_bytes} stored"
        text = f"{outcome.stored.name}: {outcome.state}, {sizes}"
    output.show(_as_dict(outcome), text)


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
        fields = metadata_fields(metadata)
        names = ("maxTimestamp", "brokerId", "eventTimestamp", "leaderEpochs", "txnIndexEmpty")
        told |= {name: fields[name] for name in names}
    if outcome.stored is not None:
        told["object"] = outcome.stored.name
        told["storedBytes"] = outcome.stored.stored_bytes
        told["customMetadata"] = base64_text(outcome.stored.custom_metadata)
    return told
