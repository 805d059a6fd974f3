"""``tierlog verify``: report every fault of a bucket, a log directory or a file."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import ExitCode
from tierlog.cli.options import (
    CommandConfigOption,
    ConfigOption,
    DryRunOption,
    LayoutName,
    LayoutOption,
    LedgerOption,
    MetadataOption,
    Output,
    OutputOption,
    PartitionOption,
    PathArgument,
    SparkOption,
    TopicArgument,
)
from tierlog.cli.stderr import ByteProgress
from tierlog.cli.tiers import check_command_config, command_keys, config_keys

if TYPE_CHECKING:
    from tierlog.upkeep import Report


def verify(
    path: PathArgument,
    topic: TopicArgument = None,
    partition: PartitionOption = None,
    config: ConfigOption = None,
    layout: LayoutOption = LayoutName.AUTO,
    metadata: MetadataOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TEXT,
    notes: Annotated[
        bool | None,
        typer.Option(
            "--notes/--no-notes", help="Print notes about what is odd but legal. By default in text, not in JSON."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Segments to check side by side; by default one for each processor."),
    ] = None,
    spark: SparkOption = None,
    ledger: LedgerOption = None,
    dry_run: DryRunOption = False,
) -> ExitCode:
    """Check every batch, record, index entry, snapshot, checkpoint, chunk and size, also against each other.

    Prints one line (or JSON object) for each fault: object, byte position, what was expected and what was found. Ends
    with 1 if there is any fault, with 3 if there is none but something could not be checked, else with 0.

    A log that ends inside a batch is a note if it is the active segment of a log directory (TORN_TAIL: it is being
    written, or was cut by recovery), and a fault anywhere else (TRUNCATED, 1). It is a fault too if PATH is one file,
    since only the directory shows which segment is active.

    With --ledger, what an earlier run has checked is not read again, and its faults are told again.
    """
    from tierlog.cli.spark_session import spark_executor, tell_estimate
    from tierlog.cli.tiers import check_topic
    from tierlog.upkeep import verify as verify_tier

    check_command_config(metadata, command_config)
    if topic is not None:
        check_topic(path, topic)
    with_notes = notes if notes is not None else output is Output.TEXT
    tell = partial(tell_estimate, "verify", output=output, is_answer=dry_run, is_told=spark is not None)
    master = None if dry_run else spark
    with spark_executor(master, "verify", jobs) as executor, ByteProgress("verify") as progress:
        result = verify_tier(
            path,
            topic,
            partitions=partition,
            config=config_keys(config),
            layout=layout,
            metadata=metadata or None,
            metadata_client=command_keys(command_config),
            workers=jobs,
            executor=executor,
            ledger=ledger,
            dry_run=dry_run,
            on_estimate=tell,
            on_report=lambda report: _print(report, output, with_notes=with_notes),
            on_bytes=progress.step,
        )
    if output is Output.TEXT and not dry_run:
        read = "" if result.segments is None else f"{result.segments} segments, "
        print(
            f"{read}{result.batches} batches, {result.records} records, {result.size_bytes} bytes: "
            f"{result.faults} faults, {result.errors} errors, {result.notes} notes"
        )
    sys.stdout.flush()
    if result.faults:
        return ExitCode.FAULTS_FOUND
    return ExitCode.DATA_ERROR if result.errors else ExitCode.DONE


def _print(report: Report, output: Output, *, with_notes: bool) -> None:
    from tierlog.upkeep import Severity

    for finding in report.findings:
        if finding.severity is Severity.NOTE and not with_notes:
            continue
        output.show(finding.as_dict(), f"{finding.severity}: {finding.kind}: {finding}")
