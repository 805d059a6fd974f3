"""``tierlog dump``: the content of log files, indexes, snapshots and tiered segments, as kafka-dump-log prints it."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import ExitCode, complain
from tierlog.cli.options import PATH_HELP, ConfigOption, LayoutName, LayoutOption, PartitionOption
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from tierlog.cli.dump.json_format import JsonForm
    from tierlog.cli.dump.kafka_format import KafkaForm
    from tierlog.cli.dump.payloads import Payloads
    from tierlog.cli.dump.sources import IndexFindings, Part
    from tierlog.errors import CorruptDataError
    from tierlog.log.formats.segment_indexes import OffsetIndex, TimeIndex
    from tierlog.remote.metadata.record_text import KipProperties

#: Index entries without a batch that are printed one by one.
ENTRIES_TOLD_MAX = 10


class DumpFormat(enum.StrEnum):
    """Values of --format."""

    KAFKA = "kafka"
    KIP = "kip"
    JSON = "json"


def dump(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help=PATH_HELP, show_default=False)],
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic of a log directory or bucket.")
    ] = None,
    partition: PartitionOption = None,
    deep: Annotated[
        bool, typer.Option("--deep", "--deep-iteration", help="Print the records of each batch too.")
    ] = False,
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="Print keys and values too; implies --deep.")
    ] = False,
    remote_log_metadata: Annotated[
        bool,
        typer.Option(
            "--remote-log-metadata",
            "--remote-log-metadata-decoder",
            help="Decode values as records of __remote_log_metadata; implies --deep.",
        ),
    ] = False,
    output_format: Annotated[
        DumpFormat,
        typer.Option(
            "--format",
            help="kafka-dump-log's lines, KIP-405's for records of __remote_log_metadata (implies "
            "--remote-log-metadata), or a JSON object on each line.",
        ),
    ] = DumpFormat.KAFKA,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="K=V",
            help="Of --format kip, true or false: print.partition, print.message.offset, print.version, "
            "print.all.event.value.fields.",
        ),
    ] = None,
    config: ConfigOption = None,
    layout: LayoutOption = LayoutName.AUTO,
) -> ExitCode:
    """Print batches, records, index entries, producers and checkpoints as they lie in the files.

    For a log directory every file is shown, for a bucket every part of every segment of the topic. Records of the topic
    __transaction_state are shown decoded. Readable data is printed and faults are reported on stderr; if there is a
    fault, the command ends with 1.

    --format kip prints the records of logs and nothing else. Where KIP-405 has a leader epoch, Kafka's records have the
    id of the broker, and so has this output.
    """
    from tierlog.cli.dump.sources import PartFinder
    from tierlog.remote.metadata.record_text import KipProperties
    from tierlog.runtime.machine import Machine

    if properties and output_format is not DumpFormat.KIP:
        raise ConfigError("--property is for --format kip")
    shown = KipProperties.of(properties or ())
    metadata = remote_log_metadata or output_format is DumpFormat.KIP
    finder = PartFinder(Machine().files, topic, tuple(partition or ()), layout.value, config)
    run = _Run(deep or print_data_log or metadata, print_data_log, metadata, output_format, shown)
    for path in paths:
        for part in finder.iter_parts(path):
            run.show(part)
    for ignored in finder.ignored:
        complain(f"{ignored}: none of Kafka's log files, ignored")
    return ExitCode.FAULTS_FOUND if run.faults else ExitCode.DONE


@dataclass(slots=True)
class _Run:
    """The printing of parts, with a count of their faults."""

    deep: bool
    print_payloads: bool
    remote_log_metadata: bool
    output_format: DumpFormat
    properties: KipProperties
    faults: int = 0

    def show(self, part: Part) -> None:
        from tierlog.cli.dump import sources
        from tierlog.errors import CorruptDataError

        if self.output_format is DumpFormat.KIP and part.kind is not sources.PartKind.LOG:
            return
        form = self._form(part)
        self._print(form.begin_lines())
        try:
            if part.kind is sources.PartKind.LOG:
                self._log(part, form)
            elif part.kind in (sources.PartKind.OFFSET_INDEX, sources.PartKind.TIME_INDEX):
                self._index(part, form)
            elif part.kind is sources.PartKind.TRANSACTION_INDEX:
                self._transactions(part, form)
            else:
                self._print(form.entry_lines(*sources.small_file_rows(part)))
        except CorruptDataError as fault:
            self._fault(fault.located(part.label), form)

    def _form(self, part: Part) -> KafkaForm | JsonForm:
        from tierlog.cli.dump.json_format import JsonForm
        from tierlog.cli.dump.kafka_format import KafkaForm, KipForm

        if self.output_format is DumpFormat.KIP:
            return KipForm(part.label, self._kip_payloads(part))
        kind = KafkaForm if self.output_format is DumpFormat.KAFKA else JsonForm
        return kind(part.label, self._payloads(part))

    def _kip_payloads(self, part: Part) -> Payloads:
        from tierlog.cli.dump.payloads import RemoteLogMetadataPayloads
        from tierlog.remote.metadata.record_text import kip_line

        if part.partition is None and self.properties.print_partition:
            raise ConfigError(f"{part.label}: it lies in no folder of a partition, which print.partition would print")
        partition = -1 if part.partition is None else part.partition
        return RemoteLogMetadataPayloads(
            lambda record, offset: kip_line(record, self.properties, partition=partition, offset=offset)
        )

    def _payloads(self, part: Part) -> Payloads | None:
        from tierlog.cli.dump.payloads import Payloads, RemoteLogMetadataPayloads, TransactionStatePayloads
        from tierlog.log.formats.transaction_state import TOPIC

        if self.remote_log_metadata:
            return RemoteLogMetadataPayloads()
        if part.topic == TOPIC:
            return TransactionStatePayloads()
        return Payloads() if self.print_payloads else None

    def _log(self, part: Part, form: KafkaForm | JsonForm) -> None:
        from tierlog.cli.dump.log import LogDump
        from tierlog.errors import CorruptDataError

        self._print(form.log_lines(part.base_offset))
        walk = LogDump(part, form.batch_lines, form.record_lines, self.deep)
        told = 0
        for found in walk:
            if isinstance(found, CorruptDataError):
                told += 1
                self._fault(found, form)
            else:
                self._print(found)
        if walk.trailing_bytes:
            self._print(form.trailing_lines(walk.trailing_bytes))
            self.faults += 1
        self._print(form.step_lines(walk.steps))
        if walk.faults > told:
            complain(f"{part.label}: {walk.faults - told} more faults")
        if form.payload_faults:
            complain(f"{part.label}: {form.payload_faults} records could not be decoded")
            self.faults += form.payload_faults

    def _index(self, part: Part, form: KafkaForm | JsonForm) -> None:
        from tierlog.cli.dump import sources
        from tierlog.log.formats.segment_indexes import OffsetIndex, TimeIndex

        data, base_offset = part.whole(), part.base_offset or 0
        log = None if part.log is None else part.log.outline()
        if part.kind is sources.PartKind.OFFSET_INDEX:
            index: OffsetIndex | TimeIndex = OffsetIndex(data, base_offset)
            offsets, positions = self._in_use(index, *sources.offset_entries(data, base_offset))
            self._print(form.entry_lines("offsetEntry", sources.rows_of(("offset", "position"), offsets, positions)))
            findings = None if log is None else sources.compare_offsets(offsets, positions, log)
        else:
            index = TimeIndex(data, base_offset)
            timestamps, offsets = self._in_use(index, *sources.time_entries(data, base_offset))
            self._print(form.entry_lines("timeEntry", sources.rows_of(("timestamp", "offset"), timestamps, offsets)))
            findings = None if log is None else sources.compare_times(timestamps, offsets, log)
        if findings is None:
            complain(f"{part.label}: its .log is not there, so its entries were not compared with it")
        else:
            self._findings(part, form, findings, entries=len(index))
        index.check()

    def _transactions(self, part: Part, form: KafkaForm | JsonForm) -> None:
        from tierlog.cli.dump.sources import transaction_rows
        from tierlog.errors import CorruptIndexError
        from tierlog.log.formats.segment_indexes import TransactionIndex

        data, kind = part.whole(), "abortedTransaction"
        try:
            entries = TransactionIndex(data).entries()
        except CorruptIndexError as fault:
            sound = TransactionIndex(data[: fault.position]).entries()
            self._print(form.entry_lines(kind, transaction_rows(sound)))
            raise
        self._print(form.entry_lines(kind, transaction_rows(entries)))
        TransactionIndex(data, part.base_offset or 0).check()

    def _in_use(
        self, index: OffsetIndex | TimeIndex, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return both columns; in JSON without the zeros of preallocation, which kafka-dump-log shows as an entry."""
        count = len(index) if self.output_format is DumpFormat.JSON else None
        return first[:count], second[:count]

    def _findings(self, part: Part, form: KafkaForm | JsonForm, findings: IndexFindings, *, entries: int) -> None:
        """Report index entries that contradict the log. Preallocated zeros (if no entry is in use) are reported and not
        counted.
        """
        self._print(form.index_lines(findings))
        if not findings or not entries:
            return
        self.faults += 1
        for offset, position in findings.no_batch[:ENTRIES_TOLD_MAX]:
            complain(f"{part.label}: the entry of offset {offset} points to {position}, where no batch begins")
        if len(findings.no_batch) > ENTRIES_TOLD_MAX:
            complain(f"{part.label}: {len(findings.no_batch) - ENTRIES_TOLD_MAX} more entries point to no batch")

    def _fault(self, fault: CorruptDataError, form: KafkaForm | JsonForm) -> None:
        self.faults += 1
        if self.output_format is DumpFormat.JSON:
            from tierlog.cli.dump.json_format import JsonForm

            assert isinstance(form, JsonForm)
            self._print([form.fault_line(fault)])
        sys.stdout.flush()
        complain(str(fault))

    @staticmethod
    def _print(lines: Iterable[str]) -> None:
        text = "\n".join(lines)
        if text:
            sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
