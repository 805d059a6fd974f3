"""``tierlog cat``: the records of a bucket, a log directory or one segment file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import ExitCode, TerminatedError, complain
from tierlog.cli.options import (
    CommandConfigOption,
    ConfigOption,
    Encoding,
    FailOnDataLossOption,
    Format,
    Isolation,
    LayoutName,
    LayoutOption,
    LogStartOption,
    MetadataOption,
    PartitionOption,
    PathArgument,
    TopicsArgument,
)
from tierlog.cli.stderr import ByteProgress
from tierlog.cli.tiers import open_path
from tierlog.errors import ConfigError, TierlogError

if TYPE_CHECKING:
    import pyarrow as pa

    from tierlog.cli.records.cat_request import RecordSearch
    from tierlog.cli.records.record_output import RecordOutput
    from tierlog.cli.tiers import TopicChoice
    from tierlog.remote.tier import Tier
    from tierlog.scan.history import PartitionHistory
    from tierlog.scan.planning.plan import ScanPlan
    from tierlog.scan.reading.parallel_scan import ParallelScan
    from tierlog.scan.scan_range import ScanRange
    from tierlog.scan.scan_request import ScanRequest

_AS_HELP = (
    "How JSON lines (by default base64), CSV and TSV (by default utf8, never json) show it; what is not of that form "
    'comes as {"base64": …}.'
)
_TIME_HELP = "ISO 8601 (UTC), how long ago (90s, 15m, 1h, 7d), or ms since 1970."


def cat(
    path: PathArgument,
    topic: TopicsArgument = None,
    partition: PartitionOption = None,
    config: ConfigOption = None,
    layout: LayoutOption = LayoutName.AUTO,
    metadata: MetadataOption = None,
    command_config: CommandConfigOption = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="arrow is the stream form of Arrow IPC, arrow-file the file form (Feather); these two and parquet "
            "need --out or a pipe.",
        ),
    ] = Format.TEXT,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="NAME,…",
            help="Only these columns, in this order: topic, partition, offset, timestamp, timestampType, leaderEpoch, "
            "key, value, headers, segment.",
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            metavar="TEXT",
            help="Format of a record, as kcat -f has it: %t topic, %p partition, %o offset, %T ms, %k key, %K its "
            "length, %s value, %S its length (%R in four bytes), %h headers, %%; \\n, \\t, \\r, \\0, \\xHH.",
        ),
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of records.")] = False,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write to FILE, which appears when it is whole, instead of stdout."),
    ] = None,
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="read_committed leaves out aborted and open transactions.")
    ] = Isolation.READ_UNCOMMITTED,
    first: Annotated[int | None, typer.Option("--from", metavar="OFFSET", min=0, help="First offset.")] = None,
    end: Annotated[
        int | None, typer.Option("--to", metavar="OFFSET", min=0, help="End offset, exclusive as in Kafka.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help=f"Records of this time or later: {_TIME_HELP}")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Records before this time, given as for --since.")
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(
            "--grep",
            metavar="REGEX",
            help="Only records in which REGEX matches the key, the value or a header as NAME=VALUE, byte by byte.",
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            metavar="N",
            min=1,
            help="The last N records of each partition that fit the other options; nothing before them is read.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="At most N records in all.")] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Go on: list again and again, and print what came. Ends with 0 at ^C and SIGTERM while it waits.",
        ),
    ] = False,
    refresh: Annotated[
        float, typer.Option("--refresh", metavar="SECONDS", min=0.1, help="With --follow: time between two listings.")
    ] = 10.0,
    key_as: Annotated[Encoding | None, typer.Option("--key-as", help=_AS_HELP)] = None,
    value_as: Annotated[Encoding | None, typer.Option("--value-as", help=_AS_HELP)] = None,
    log_start: LogStartOption = None,
    fail_on_data_loss: FailOnDataLossOption = True,
) -> ExitCode:
    """Print records, ordered by topic, partition and offset.

    JSON lines: {"topic","partition","offset","timestamp","timestampType","leaderEpoch","key","value","headers"}, bytes
    as base64. Text: partition, offset, time, key and value, parted by tabs, and the headers behind them where a record
    has any. Raw: the values, a line feed behind each. CSV and TSV: a line of names, then the columns of JSON, quoted as
    RFC 4180 has it; null is an empty field, an empty text is "".

    With --follow each record comes once, those of one listing by topic, partition and offset, those of a later listing
    behind them. What retention deletes before it was printed is named on stderr; a partition waits in front of offsets
    that no segment holds. A log directory is followed into the active segment, by whole batches.

    If there is no record, stderr says why. If something fails midway, the records before it have been printed and the
    command ends with 3.
    """
    from tierlog.cli.records.cat_request import RecordSearch, empty_answer, scan_request
    from tierlog.cli.records.record_output import RecordOutput, open_sink
    from tierlog.cli.tiers import TopicChoice
    from tierlog.scan.planning.plan import list_histories, prepare_scan
    from tierlog.scan.scan_request import log_starts_by_topic, parse_log_starts

    output = RecordOutput.of(form, columns=columns, template=template, count=count, key_as=key_as, value_as=value_as)
    output.check_target(out)
    if follow:
        _check_follow(output, {"--to": end, "--until": until, "--out": out, "--metadata": metadata, "--count": count})
    search = None if grep is None else RecordSearch(grep)
    choice = TopicChoice.of(path, topic)
    with open_path(path, layout=layout, config=config, metadata=metadata, command_config=command_config) as tier:
        label, choice = _labelled(tier, choice)
        starts = log_starts_by_topic(parse_log_starts(log_start), choice.of_tier(tier.topics())) if log_start else {}
        request = scan_request(
            topics=choice.selection(partition),
            partitions=partition,
            first_offset=first,
            end_offset_exclusive=end,
            since=since,
            until=until,
            isolation_level=isolation.value,
            log_start_offsets=starts,
            fail_on_data_loss=fail_on_data_loss,
            now_ms=tier.machine.clock.time_ms(),
        )
        if follow:
            return _follow(tier, request, choice, output, search, label, last=last, limit=limit, refresh=refresh)
        histories, left_out = list_histories(tier, request)
        for pattern in choice.unmatched_patterns(tier, (history.topic for history in histories)):
            complain(f"no topic matches {pattern}")
        prepared = prepare_scan(tier, _last(tier, request, histories, last, search), histories=histories)
        shown = 0
        if count and search is None and limit is None:
            shown, prepared = prepared.counted_by_footers()
        plan = prepared.plan()
        for warning in [*left_out, *plan.warnings]:
            complain(f"warning: {warning}")
        with (
            open_sink(out) as sink,
            output.writer(sink, counted=shown) as write,
            ByteProgress("cat", plan.size_bytes) as progress,
            closing(_scan(tier, plan, output, search, label, progress)) as found,
        ):
            for rows in _limited(found if search is None else search.matching(found), limit):
                shown += rows.num_rows
                write(rows)
        if not shown and limit != 0:
            for line in empty_answer(request, histories, plan.bounds, searched=search is not None):
                complain(line)
    return ExitCode.DONE


def _check_follow(output: RecordOutput, others: Mapping[str, object]) -> None:
    """Check that --follow is given without options that need all records first. Raises ConfigError."""
    given = [name for name, value in others.items() if value is not None and value is not False]
    if output.lines is None and not output.counts:
        given.append(f"--format {output.form}")
    if given:
        raise ConfigError(f"--follow does not go together with {', '.join(given)}")


def _follow(
    tier: Tier,
    request: ScanRequest,
    choice: TopicChoice,
    output: RecordOutput,
    search: RecordSearch | None,
    label: str | None,
    *,
    last: int | None,
    limit: int | None,
    refresh: float,
) -> ExitCode:
    """Print the records that are there, then those that are added, until a signal or the limit ends it."""
    from tierlog.cli.records.following import FollowedRecords
    from tierlog.cli.records.record_output import open_sink

    followed = FollowedRecords(tier, request, complain)
    first, histories = followed.first_plan(lambda asked, found: _last(tier, asked, found, last, search))
    for pattern in choice.unmatched_patterns(tier, (history.topic for history in histories)):
        complain(f"no topic matches {pattern}")
    plan: ScanPlan | None = first
    left, progress = limit, ByteProgress("cat")
    with open_sink(None) as sink, output.writer(sink) as write:
        while True:
            try:
                plan = plan or followed.next_plan()
                with closing(_scan(tier, plan, output, search, label, progress, more=FollowedRecords.COLUMNS)) as found:
                    for rows in _limited(found if search is None else search.matching(found), left):
                        write(rows)
                        followed.printed(rows)
                        left = None if left is None else left - rows.num_rows
                followed.finish(plan)
            except TierlogError as error:
                followed.fail(error)
            sys.stdout.flush()
            if left == 0:
                return ExitCode.DONE
            plan = None
            try:
                tier.machine.clock.sleep(refresh)
            except (KeyboardInterrupt, TerminatedError):
                return ExitCode.DONE  # all of it has been printed


def _labelled(tier: Tier, choice: TopicChoice) -> tuple[str | None, TopicChoice]:
    """Return the request for one file, which is read whatever its folder is called: TOPIC then names the records'
    topic.

    Raises:
        ConfigError: several topics or a pattern are given for one file.
    """
    if tier.layout != "file":
        return None, choice
    if choice.patterns or len(choice.names) > 1:
        raise ConfigError("PATH is one file: TOPIC says whose records they are, so one name can be given")
    return next(iter(choice.names), None), type(choice)()


def _last(
    tier: Tier,
    request: ScanRequest,
    histories: Sequence[PartitionHistory],
    last: int | None,
    search: RecordSearch | None,
) -> ScanRequest:
    """Return the request, narrowed to the last N records of each partition."""
    from tierlog.cli.records.cat_request import SEARCHED_COLUMNS
    from tierlog.scan.planning.probes import LastRecords

    if last is None:
        return request
    if search is None:
        records = LastRecords(tier, request, last)
    else:
        records = LastRecords(tier, request, last, columns=SEARCHED_COLUMNS, choose=search.matching)
    return replace(request, starting_offsets=records.first_offsets(histories))


def _scan(
    tier: Tier,
    plan: ScanPlan,
    output: RecordOutput,
    search: RecordSearch | None,
    label: str | None,
    progress: ByteProgress,
    *,
    more: tuple[str, ...] = (),
) -> ParallelScan:
    """Iterate the record batches of the plan in order, decoded on other threads than the writer's."""
    import pyarrow as pa

    from tierlog.cli.records.cat_request import SEARCHED_COLUMNS
    from tierlog.scan.reading.parallel_scan import ParallelScan
    from tierlog.scan.reading.read import read_scan_range

    columns = tuple(dict.fromkeys([*output.columns, *(SEARCHED_COLUMNS if search is not None else ()), *more]))
    place = columns.index("topic") if label is not None and "topic" in columns else None

    def read(scan_range: ScanRange) -> Iterator[pa.RecordBatch]:
        for rows in read_scan_range(tier, scan_range, columns=columns, target_bytes=output.target_bytes):
            if place is not None:
                rows = rows.set_column(place, rows.schema.field(place), pa.repeat(label, rows.num_rows))
            yield rows
        progress.advance(scan_range.size_bytes)

    return ParallelScan(plan.ranges, read, machine=tier.machine)


def _limited(found: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the first ``limit`` rows; no further batch is asked for."""
    left = limit
    if left == 0:
        return
    for rows in found:
        if left is not None and rows.num_rows >= left:
            yield rows.slice(0, left)
            return
        yield rows
        left = None if left is None else left - rows.num_rows
