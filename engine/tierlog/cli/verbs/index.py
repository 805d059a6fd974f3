"""``tierlog index``: write the footers that segments of a bucket lack."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import ExitCode, complain
from tierlog.cli.options import (
    BucketArgument,
    ConfigOption,
    LayoutName,
    LayoutOption,
    LedgerOption,
    Output,
    OutputOption,
    PartitionOption,
    SparkOption,
    TopicArgument,
)
from tierlog.cli.stderr import ByteProgress
from tierlog.cli.tiers import config_keys

if TYPE_CHECKING:
    from tierlog.upkeep import FooterOutcome


def index(
    path: BucketArgument,
    topic: TopicArgument = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PREFIX",
            help="Put the footers there, for a bucket that may not be written to: a URL or a folder, reached by the "
            "same keys. Readers are given it as footer.path.",
        ),
    ] = None,
    partition: PartitionOption = None,
    config: ConfigOption = None,
    layout: LayoutOption = LayoutName.AUTO,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which segments lack a footer; no log is read.")
    ] = False,
    output: OutputOption = Output.TEXT,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", min=1, help="Segments under way at once; by default one a processor."),
    ] = None,
    spark: SparkOption = None,
    ledger: LedgerOption = None,
) -> ExitCode:
    """Write a footer beside each segment that lacks one: counts, times and batches, so that readers need not read.

    Each log is read once and every batch checked; a segment that is damaged is named, gets no footer, and the command
    ends with 3. Segments whose footer can be believed are left alone, so that the same command continues a run that was
    interrupted; a footer that is damaged or of other bytes is written anew. What is encrypted stays so: footers are
    encrypted under their segment's data key. Nothing but footers is written.

    With --to, footers there of segments that are gone are removed, by a run over all topics and partitions.

    With --ledger, not even the footers are looked at of segments that an earlier run has done.

    With --dry-run it ends with 1 if there is anything to do. JSON: one object for each segment,
    {"state","footer","topic","partition","segmentId","sizeBytes","reason","error"}.
    """
    from tierlog.cli.spark_session import spark_executor, tell_estimate
    from tierlog.upkeep import index as index_segments

    tell = partial(tell_estimate, "index", output=output, is_answer=False, is_told=dry_run or spark is not None)
    with spark_executor(spark, "index", jobs) as executor, ByteProgress("index") as progress:
        result = index_segments(
            path,
            topic,
            to=to,
            partitions=partition,
            config=config_keys(config),
            layout=layout,
            dry_run=dry_run,
            workers=jobs,
            executor=executor,
            ledger=ledger,
            on_estimate=tell,
            on_segment=lambda outcome: _say(outcome, output),
            on_bytes=progress.step,
        )
    if output is Output.TEXT:
        print(
            f"{result.segments} segments: {result.written} footers written ({result.written_bytes} bytes), "
            f"{result.present} there, {result.pending} to do, {result.unfit} cannot have one, {result.failed} failed, "
            f"{result.removed} removed"
        )
    if result.failed:
        return ExitCode.DATA_ERROR
    return ExitCode.FAULTS_FOUND if result.pending else ExitCode.DONE


def _say(outcome: FooterOutcome, output: Output) -> None:
    from tierlog.upkeep import FooterState

    if outcome.error is not None:
        complain(str(outcome.error))
    if output is Output.TEXT and outcome.state is FooterState.PRESENT:
        return
    segment = outcome.segment
    partition = None if segment is None else segment.topic_id_partition
    told = {
        "state": str(outcome.state),
        "footer": outcome.name,
        "topic": None if partition is None else partition.topic,
        "partition": None if partition is None else partition.partition,
        "segmentId": None if segment is None else str(segment.metadata.remote_log_segment_id.id),
        "sizeBytes": outcome.size_bytes,
        "reason": outcome.reason or None,
        "error": None if outcome.error is None else str(outcome.error),
    }
    reason = f": {outcome.reason}" if outcome.reason else ""
    output.show(told, f"{outcome.state}: {outcome.name}{reason}")
