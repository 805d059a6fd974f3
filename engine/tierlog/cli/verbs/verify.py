"""``tierlog verify``: report every fault of a bucket, a log directory or a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import ExitCode, guarded, one_line
from tierlog.cli.options import (
    CommandConfigOption,
    ConfigOption,
    LayoutName,
    LayoutOption,
    MetadataOption,
    Output,
    OutputOption,
    PartitionOption,
    PathArgument,
    TopicArgument,
)
from tierlog.cli.progress import ByteProgress
from tierlog.cli.tiers import is_file, open_path

if TYPE_CHECKING:
    from tierlog.log.checks.findings import Finding, Report


def register(app: typer.Typer) -> None:
    app.command("verify")(guarded(verify))


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
) -> ExitCode:
    """Check every batch, record, index entry, snapshot, checkpoint, chunk and size, also against each other.

    Prints one line (or JSON object) for each fault: object, byte position, what was expected and what was found. Ends
    with 1 if there is any fault, with 3 if there is none but something could not be checked, else with 0.

    A log that ends inside a batch is a note if it is the active segment of a log directory (TORN_TAIL: it is being
    written, or was cut by recovery), and a fault anywhere else (TRUNCATED, 1). It is a fault too if PATH is one file,
    since only the directory shows which segment is active.
    """
    printer = _Printer(output, notes if notes is not None else output is Output.TEXT)
    if topic is not None:
        from tierlog.cli.topics import check_topic

        check_topic(path, topic)
    if is_file(path) and topic is None and not metadata:
        from tierlog.runtime.machine import Machine
        from tierlog.upkeep.verification.file_verification import verify_file

        printer.take(verify_file(Machine().files, path))
        return printer.end()

    from tierlog.upkeep.verification.verification import Verification

    with open_path(path, layout=layout, config=config, metadata=metadata, command_config=command_config) as tier:
        run = Verification(tier, topic=topic, partitions=partition, workers=jobs or tier.machine.scheduler.cores)
        with ByteProgress("verify", run.size_bytes) as progress:
            for report in run:
                printer.take(report)
                progress.advance(report.size_bytes)
    return printer.end(segments=len(run.segments))


@dataclass(slots=True)
class _Printer:
    """Prints findings as they come and sums up."""

    output: Output
    with_notes: bool
    faults: int = 0
    errors: int = 0
    notes: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0

    def take(self, report: Report) -> None:
        self.batches += report.batches
        self.records += report.records
        self.size_bytes += report.size_bytes
        self._print(report.findings)

    def _print(self, findings: Iterable[Finding]) -> None:
        from tierlog.log.checks.findings import Severity

        for finding in findings:
            self.faults += finding.severity is Severity.FAULT
            self.errors += finding.severity is Severity.ERROR
            self.notes += finding.severity is Severity.NOTE
            if finding.severity is Severity.NOTE and not self.with_notes:
                continue
            if self.output is Output.JSON:
                print(json.dumps(finding.as_dict(), ensure_ascii=False))
            else:
                print(one_line(f"{finding.severity}: {finding.kind}: {finding}"))

    def end(self, *, segments: int | None = None) -> ExitCode:
        if self.output is Output.TEXT:
            read = "" if segments is None else f"{segments} segments, "
            print(
                f"{read}{self.batches} batches, {self.records} records, {self.size_bytes} bytes: {self.faults} faults, "
                f"{self.errors} errors, {self.notes} notes"
            )
        sys.stdout.flush()
        if self.faults:
            return ExitCode.FAULTS_FOUND
        return ExitCode.DATA_ERROR if self.errors else ExitCode.DONE
