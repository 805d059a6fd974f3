"""``tierlog cat``: the records of a bucket, a log directory or one segment file."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import complain, guarded
from tierlog.cli.options import (
    ConfigOption,
    FailOnDataLossOption,
    Isolation,
    LayoutName,
    LayoutOption,
    LogStartOption,
    PartitionOption,
    PathArgument,
    TopicArgument,
)
from tierlog.cli.progress import ByteProgress
from tierlog.cli.tiers import open_path
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from tierlog.remote.manager.parallel_scan import ParallelScan
    from tierlog.remote.manager.scan_plan import ScanPlan
    from tierlog.remote.manager.scan_range import ScanRange
    from tierlog.remote.storage import Tier

#: Size of the record batches: small, so that lines come early and the allocator keeps the memory of their texts (from
#: 1 MiB on the kernel maps and clears it anew for each: a quarter of the time).
LINE_TARGET_BYTES = 1 << 18
TABLE_TARGET_BYTES = 8 << 20


class Format(enum.StrEnum):
    """--format"""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"
    PARQUET = "parquet"
    ARROW = "arrow"


class Encoding(enum.StrEnum):
    """--key-as, --value-as"""

    BASE64 = "base64"
    UTF8 = "utf8"
    JSON = "json"


_AS_HELP = 'How JSON lines show it; what is not of that form comes as {"base64": …}.'


def register(app: typer.Typer) -> None:
    app.command("cat")(guarded(cat))


def cat(
    path: PathArgument,
    topic: TopicArgument = None,
    partition: PartitionOption = None,
    config: ConfigOption = None,
    layout: LayoutOption = LayoutName.AUTO,
    form: Annotated[Format, typer.Option("--format", help="parquet and arrow go to --out or a pipe.")] = Format.TEXT,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write there instead of to stdout; it appears when whole."),
    ] = None,
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="read_committed leaves aborted and undecided transactions out.")
    ] = Isolation.READ_UNCOMMITTED,
    first: Annotated[int | None, typer.Option("--from", metavar="OFFSET", min=0, help="First offset.")] = None,
    end: Annotated[
        int | None, typer.Option("--to", metavar="OFFSET", min=0, help="End offset, exclusive as in Kafka.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Records of this time or later: ISO 8601 (UTC) or ms since 1970."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Records before this time: ISO 8601 (UTC) or ms.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="REGEX", help="Records whose key or value bytes match somewhere.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="At most N records.")] = None,
    key_as: Annotated[Encoding, typer.Option("--key-as", help=_AS_HELP)] = Encoding.BASE64,
    value_as: Annotated[Encoding, typer.Option("--value-as", help=_AS_HELP)] = Encoding.BASE64,
    log_start: LogStartOption = None,
    fail_on_data_loss: FailOnDataLossOption = True,
) -> None:
    """Print records, ordered by topic, partition and offset.

    JSON lines: {"topic","partition","offset","timestamp","timestampType","leaderEpoch","key","value","headers"}, bytes
    as base64. Text: partition, offset, time, key and value, parted by tabs. Raw: the values, a line feed behind each.

    If something fails midway, the rows before it have been printed and the command ends with 3.
    """
    from tierlog.cli.record_output import open_sink, record_writer
    from tierlog.cli.scan_options import parse_log_starts, scan_request
    from tierlog.remote.manager.scan_plan import plan_scan

    pattern = _pattern(grep)
    with open_path(path, layout=layout, config=config) as tier:
        # One file is read whatever its folder is called: TOPIC then says whose records they are.
        label, topic = (topic, None) if tier.layout == "file" else (None, topic)
        request = scan_request(
            topic=topic,
            partitions=partition,
            first_offset=first,
            end_offset_exclusive=end,
            since=since,
            until=until,
            isolation_level=isolation.value,
            log_start_offsets=parse_log_starts(log_start, tier.topics(), topic) if log_start else {},
            fail_on_data_loss=fail_on_data_loss,
        )
        plan = plan_scan(tier, request)
        for warning in plan.warnings:
            complain(f"warning: {warning}")
        _refuse_terminal(form, out)
        target = TABLE_TARGET_BYTES if form in (Format.PARQUET, Format.ARROW) else LINE_TARGET_BYTES
        with (
            open_sink(out) as sink,
            record_writer(sink, form, key_as=key_as, value_as=value_as) as writer,
            ByteProgress("cat", plan.size_bytes) as progress,
            closing(_scan(tier, plan, target, label, progress)) as found,
        ):
            for rows in _limited(_matching(found, pattern), limit):
                writer.write(rows)


def _pattern(grep: str | None) -> re.Pattern[bytes] | None:
    if grep is None:
        return None
    try:
        return re.compile(grep.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise ConfigError(f"--grep {grep!r}: {error}") from error


def _refuse_terminal(form: Format, out: str | None) -> None:
    import sys

    if out is None and form in (Format.PARQUET, Format.ARROW) and sys.stdout.isatty():
        raise ConfigError(f"--format {form} is binary: give --out FILE or a pipe")


def _scan(tier: Tier, plan: ScanPlan, target_bytes: int, label: str | None, progress: ByteProgress) -> ParallelScan:
    """The record batches of the plan in order, decoded on other threads than the one that writes lines."""
    import pyarrow as pa

    from tierlog.cli.record_output import COLUMNS
    from tierlog.remote.manager.parallel_scan import ParallelScan
    from tierlog.remote.manager.scan_read import read_scan_range

    def read(scan_range: ScanRange) -> Iterator[pa.RecordBatch]:
        for rows in read_scan_range(tier, scan_range, columns=COLUMNS, target_bytes=target_bytes):
            yield rows if label is None else rows.set_column(0, rows.schema.field(0), pa.repeat(label, rows.num_rows))
        progress.advance(scan_range.size_bytes)

    return ParallelScan(plan.ranges, read, machine=tier.machine)


def _matching(found: Iterable[pa.RecordBatch], pattern: re.Pattern[bytes] | None) -> Iterator[pa.RecordBatch]:
    """The rows whose key or value the pattern is found in."""
    if pattern is None:
        yield from found
        return
    search = pattern.search
    for rows in found:
        pairs = zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True)
        chosen = [
            place
            for place, (key, value) in enumerate(pairs)
            if (key is not None and search(key)) or (value is not None and search(value))
        ]
        if chosen:
            yield rows if len(chosen) == rows.num_rows else rows.take(chosen)


def _limited(found: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first ``limit`` rows; nothing behind them is asked for."""
    left = limit
    if left == 0:
        return
    for rows in found:
        if left is not None and rows.num_rows >= left:
            yield rows.slice(0, left)
            return
        yield rows
        left = None if left is None else left - rows.num_rows
