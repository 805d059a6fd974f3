"""``tierlog ls``: topics, partitions and segments, and which segments count."""

from __future__ import annotations

import enum
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierlog.cli.exits import ExitCode, complain, one_line
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
    TopicsArgument,
)
from tierlog.cli.segments import epochs_text, metadata_fields, table
from tierlog.cli.tiers import check_command_config, config_keys, open_path, read_metadata
from tierlog.cli.times import utc_text
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from tierlog.cli.tiers import TopicChoice
    from tierlog.remote.api import TopicIdPartition
    from tierlog.remote.metadata.metadata_view import MetadataView
    from tierlog.remote.tier import Tier
    from tierlog.remote.tier.chunks.stored_segment import StoredSegment
    from tierlog.remote.tier.layouts.listing import Candidate
    from tierlog.scan.history import PartitionHistory, TierHistory
    from tierlog.scan.topic_info import PartitionInfo, TopicInfo
    from tierlog.upkeep import JobEstimate
    from tierlog.upkeep.metadata_comparison import ComparedSegment
    from tierlog.upkeep.segment_looks import SegmentLook, Wanted

Row = Mapping[str, Any]

_HEADINGS = ("START", "END", "BYTES", "STORED", "FIRST TIME", "LAST TIME", "EPOCHS", "STATE", "SEGMENT")
_COMPARED_HEADINGS = ("START", "END", "BYTES", "STORED", "STATE", "IN", "OBJECTS", "SEGMENT")
_TOTALS_HEADINGS = ("PARTITIONS", "SEGMENTS", "RECORDS", "BYTES", "STORED", "LAST TIME", "TOPIC")
#: Layouts whose descriptions name the topic.
_DESCRIBED = ("aiven", "kafka")
#: Descriptions of one prefix that are tried, where the first ones are damaged.
_TRIED_MAX = 3
_TIMES = ("minTimestamp", "maxTimestamp", "eventTimestamp", "lastModified")


class Order(enum.StrEnum):
    """Values of --sort."""

    SIZE = "size"
    RECORDS = "records"
    TIME = "time"


def ls(
    path: PathArgument,
    topic: TopicsArgument = None,
    partition: PartitionOption = None,
    config: ConfigOption = None,
    layout: LayoutOption = LayoutName.AUTO,
    metadata: MetadataOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TEXT,
    topics: Annotated[
        bool,
        typer.Option(
            "--topics",
            help="Only the topics, from a listing and one description of each prefix; as text a name a line.",
        ),
    ] = False,
    times: Annotated[
        bool,
        typer.Option(
            "--times", help="Also the time of each segment's first record, by one small read for each segment."
        ),
    ] = False,
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="Also the number of records of each segment that has a footer, by one small read for each of these.",
        ),
    ] = False,
    totals: Annotated[
        bool,
        typer.Option(
            "--totals",
            help="One line for each topic: its partitions, segments, records (offsets that count: markers and "
            "compaction leave some without a record), bytes of the logs, bytes stored, and latest time.",
        ),
    ] = False,
    sort: Annotated[
        Order | None,
        typer.Option("--sort", help="Partitions, or topics with --totals: the largest, or the latest, first."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", min=1, help="Small reads of --times and --records at once; by default 16."),
    ] = None,
    spark: SparkOption = None,
    ledger: LedgerOption = None,
    dry_run: DryRunOption = False,
) -> ExitCode:
    """List segments: offsets, sizes, times, leader epochs, ids, and whether they count.

    STATE is `live`, `active` (a broker still writes to it), `cut A-B` (only these offsets count), or `unreferenced`
    (a duplicate after a failover, or a branch that was abandoned: no reader shows it).

    JSON: one object for each segment; a segment that counts in several runs of offsets has one for each run. With
    --topics one object for each topic: {"topic","topicId","partitions"}; with --totals {"topic","topicId","partitions",
    "segments","records","sizeBytes","storedBytes","maxTimestamp"}. Ends with 3 if a segment's description, or
    with --times its first record, cannot be read; stderr names it.

    With --metadata the bucket is compared with it instead: each segment with its state, and whether it is known to
    both, to the metadata alone, or has objects in the bucket alone. Ends with 1 if a segment that the metadata calls
    finished lacks objects.

    With --spark, executors do the small reads of --times and --records; the listing and the descriptions are read here.
    """
    from tierlog.cli.spark_session import spark_executor, tell_estimate
    from tierlog.cli.tiers import TopicChoice
    from tierlog.errors import TierlogError
    from tierlog.scan.history import SINGLE_LOG_LAYOUTS, TierHistory
    from tierlog.upkeep.segment_looks import WORKERS, Wanted, look_at

    check_command_config(metadata, command_config)
    choice = TopicChoice.of(path, topic)
    wanted = Wanted(times=times, records=records)
    if (spark or ledger) and not wanted:
        raise ConfigError("--spark and --ledger go with --times or --records: a listing is read by this process alone")
    if metadata:
        if topics or wanted or totals or sort or dry_run:
            raise ConfigError("--metadata goes with none of --topics, --times, --records, --totals, --sort, --dry-run")
        with open_path(path, layout=layout, config=config) as tier:
            return _compare(
                tier, lambda: read_metadata(metadata, command_config, remember_departed=True), choice, partition, output
            )
    if (topics and (totals or sort)) or (totals and wanted):
        raise ConfigError("--topics goes with neither --totals nor --sort, --totals with neither --times nor --records")
    faults: list[TierlogError] = []
    with open_path(path, layout=layout, config=config) as tier:
        if dry_run:
            tell_estimate("ls", _estimate(tier, choice, partition, wanted), output, is_answer=True, is_told=True)
            return ExitCode.DONE
        if topics:
            _print_topics(tier, choice, partition, output)
            return ExitCode.DONE
        found = _histories(TierHistory(tier, faults=faults), choice, partition)
        for pattern in choice.unmatched_patterns(tier, (each.topic for each in found)):
            complain(f"no topic matches {pattern}")
        if sort:
            from tierlog.scan.topic_info import PartitionInfo

            found.sort(key=lambda each: _sort_key(PartitionInfo.of(each), sort), reverse=True)
        if totals:
            _print_totals(found, sort, output)
        tell = partial(tell_estimate, "ls", output=output, is_answer=False, is_told=spark is not None)
        with spark_executor(spark, "ls", jobs) as executor:
            looks = look_at(
                tier,
                _segments_of(found) if wanted else [],
                wanted,
                config=config_keys(config) or {},
                workers=jobs or WORKERS,
                executor=executor,
                ledger=ledger,
                on_estimate=tell,
            )
        faults += [look.error for look in looks.values() if look.error is not None]
        for each in found if not totals else ():
            _print_segments(tier, each, output, looks, records=records)
        for each in found:
            _warn_of_prefixes(tier, each)
        if tier.foreign_objects and tier.layout not in SINGLE_LOG_LAYOUTS:  # a broker's disk holds files of its own
            complain(
                f"{tier.foreign_objects} objects belong to no whole segment (foreign, or an upload that never ended)"
            )
    for fault in faults:
        complain(str(fault))
    return ExitCode.DATA_ERROR if faults else ExitCode.DONE


def _compare(
    tier: Tier,
    read: Callable[[], MetadataView],
    choice: TopicChoice,
    partition: list[int] | None,
    output: Output,
) -> ExitCode:
    """List the segments of the bucket and of the metadata side by side."""
    from contextlib import ExitStack

    from tierlog.scan.scan_request import TopicName
    from tierlog.upkeep.metadata_comparison import compare_with_metadata

    def accepts(found: TopicIdPartition) -> bool:
        names = [TopicName.parse(name) for name in choice.names]
        chosen = any(name.accepts(found) for name in names) or (choice.accepts(found.topic) and not names)
        return chosen and (not partition or found.partition in partition)

    with ExitStack() as held:
        compared = compare_with_metadata(tier, lambda: held.enter_context(read()), accepts)
        by_partition = [(place, list(found)) for place, found in groupby(compared, key=lambda each: each.partition)]
    for pattern in choice.unmatched_patterns(tier, (place.topic for place, _ in by_partition)):
        complain(f"no topic matches {pattern}")
    lost = 0
    for place, found in by_partition:
        lost += sum(each.is_lost for each in found)
        if output is Output.JSON:
            for each in found:
                print(json.dumps(_compared_row(each), ensure_ascii=False))
        else:
            _print_compared(place, found)
    if lost:
        complain(f"{lost} segments lack objects, and the metadata says that they are finished")
    return ExitCode.FAULTS_FOUND if lost else ExitCode.DONE


def _compared_row(each: ComparedSegment) -> Row:
    metadata = each.metadata
    told: dict[str, Any] = {
        "topic": each.partition.topic,
        "topicId": str(each.partition.topic_id),
        "partition": each.partition.partition,
        "segment": str(each.segment_id),
        "object": each.key,
        "startOffset": each.start_offset,
        "in": each.whereabouts.value,
        "state": None if each.state is None else each.state.name,
        "objects": each.objects,
        "storedBytes": each.size_bytes,
        "whole": each.whole,
    }
    known = {} if metadata is None else metadata_fields(metadata)
    names = ("endOffset", "sizeBytes", "maxTimestamp", "eventTimestamp", "brokerId", "leaderEpochs")
    return told | {name: known.get(name) for name in names}


def _print_compared(place: TopicIdPartition, found: Sequence[ComparedSegment]) -> None:
    counts = Counter(each.whereabouts.value for each in found)
    told = f"{counts['both']} in both, {counts['metadata']} in the metadata alone, {counts['bucket']} in the bucket"
    print(one_line(f"{place}  id {place.topic_id}  {len(found)} segments: {told} alone"))
    for line in table([_COMPARED_HEADINGS, *map(_compared_cells, found)], numbers=4):
        print(f"  {line}")


def _compared_cells(each: ComparedSegment) -> tuple[str, ...]:
    metadata = each.metadata
    return (
        str(each.start_offset),
        "-" if metadata is None else str(metadata.end_offset),
        "-" if metadata is None else str(metadata.segment_size_in_bytes),
        str(each.size_bytes),
        "-" if each.state is None else each.state.name,
        each.whereabouts.value,
        "whole" if each.whole else f"{each.objects} objects" if each.objects else "none",
        one_line(str(each.segment_id)),
    )


def _histories(history: TierHistory, choice: TopicChoice, partition: list[int] | None) -> list[PartitionHistory]:
    """Return the histories that were asked for. Topics given by name must have each partition that was
    given by number.
    """
    if choice.names and not choice.patterns:
        selection = choice.selection(partition)
        return history.partitions(selection.names or None, assigned=selection.assigned or None)
    found = history.partitions(pattern=choice.pattern)
    return [each for each in found if not partition or each.partition in partition]


def _print_topics(tier: Tier, choice: TopicChoice, partition: list[int] | None, output: Output) -> None:
    """Print topics as they can be given as TOPIC: with the id if two topics have one name.

    Raises:
        CorruptObjectError: the keys name other topics than the segments' descriptions, as below a key.prefix without a
            slash at its end.
    """
    candidates = list(tier.find_candidates())
    _check_names(tier, candidates)
    stored = choice.of_tier(tier.topics(candidates))
    for pattern in choice.unmatched_patterns(tier, (each.name for each in stored)):
        complain(f"no topic matches {pattern}")
    if partition:
        stored = [each for each in stored if not set(partition).isdisjoint(each.partitions)]
    names = [each.name for each in stored]
    for each in stored:
        told = {"topic": each.name, "topicId": str(each.topic_id), "partitions": list(each.partitions)}
        output.show(told, each.name if names.count(each.name) == 1 else f"{each.topic_id}:{each.name}")


def _sort_key(found: PartitionInfo | TopicInfo, order: Order) -> int:
    latest = -1 if found.max_timestamp_ms is None else found.max_timestamp_ms
    return {Order.SIZE: found.size_bytes, Order.RECORDS: found.records, Order.TIME: latest}[order]


def _print_totals(found: Sequence[PartitionHistory], order: Order | None, output: Output) -> None:
    """Print one line for each topic, and in text one of all where there are several."""
    from tierlog.scan.topic_info import topic_infos

    topics = topic_infos(found)
    if order:
        topics.sort(key=lambda each: _sort_key(each, order), reverse=True)
    if output is Output.JSON:
        for each in topics:
            told = {
                "topic": each.name,
                "topicId": str(each.topic_id),
                "partitions": len(each.partitions),
                "segments": each.segments,
                "records": each.records,
                "sizeBytes": each.size_bytes,
                "storedBytes": each.stored_bytes,
                "maxTimestamp": each.max_timestamp_ms,
            }
            print(json.dumps(told, ensure_ascii=False))
        return
    names = Counter(each.name for each in topics)
    rows = [
        _total_cells([each], each.name if names[each.name] == 1 else f"{each.topic_id}:{each.name}") for each in topics
    ]
    if len(rows) > 1:
        rows.append(_total_cells(topics, "total"))
    for line in table([_TOTALS_HEADINGS, *rows], numbers=5):
        print(line)


def _total_cells(topics: Sequence[TopicInfo], name: str) -> tuple[str, ...]:
    latest = max((-1 if each.max_timestamp_ms is None else each.max_timestamp_ms for each in topics), default=-1)
    counts = (
        sum(len(each.partitions) for each in topics),
        sum(each.segments for each in topics),
        sum(each.records for each in topics),
        sum(each.size_bytes for each in topics),
        sum(each.stored_bytes for each in topics),
    )
    return (*map(str, counts), utc_text(latest), one_line(name))


def _check_names(tier: Tier, candidates: Iterable[Candidate]) -> None:
    """Compare the topics that keys name with one description below each prefix; damaged ones are passed over."""
    from tierlog.errors import CorruptDataError, EncryptionKeyError

    if tier.layout not in _DESCRIBED:
        return
    by_prefix: dict[str, list[Candidate]] = {}
    for _, found in groupby(candidates, key=lambda each: each.segment_path.rpartition("/")[0]):
        few = list(islice(found, _TRIED_MAX))
        tried = by_prefix.setdefault(_key_prefix(tier, next(iter(few[0].objects.values())).key), [])
        tried += few[: _TRIED_MAX - len(tried)]
    for few in by_prefix.values():
        faults = []
        for candidate in few:
            try:
                tier.load(candidate)
                break
            except CorruptDataError as error:
                faults.append(error)
            except EncryptionKeyError:
                break  # all descriptions are encrypted
        else:
            raise faults[0]


def _prefixes(tier: Tier, history: PartitionHistory) -> list[str]:
    """Return the prefixes of the topic's folder in the keys of a partition's segments."""
    segments = [*(span.segment for span in history.lineage.spans), *history.unreferenced]
    return sorted({_key_prefix(tier, segment.name) for segment in segments})


def _warn_of_prefixes(tier: Tier, history: PartitionHistory) -> None:
    prefixes = _prefixes(tier, history)
    if len(prefixes) > 1:
        below = ", ".join(prefix or "none" for prefix in prefixes)
        complain(
            f"warning: {history.topic}-{history.partition}: segments of {len(prefixes)} prefixes ({below}) are taken "
            "for one log: if these are several buckets, give one of them as PATH"
        )


def _key_prefix(tier: Tier, key: str) -> str:
    """Return the prefix of the topic's folder in an object's key."""
    from tierlog.remote.tier.objects.object_keys import PARSERS

    configured = tier.scope.key_prefix
    if configured and key.startswith(configured):
        return configured
    parsed = PARSERS[tier.layout](key) if tier.layout in PARSERS else None
    return "" if parsed is None else parsed.prefix


def _plain(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for JSON: times as milliseconds, epochs as an object."""
    for row in rows:
        for name in _TIMES:
            moment = row[name]
            row[name] = None if moment is None else round(moment.timestamp() * 1000)
        row["leaderEpochs"] = {str(epoch): start for epoch, start in row["leaderEpochs"] or ()}
    return list(rows)


def _estimate(tier: Tier, choice: TopicChoice, partition: list[int] | None, wanted: Wanted) -> JobEstimate:
    """Return what a listing of segments takes behind the listing of keys."""
    from tierlog.remote.tier.layouts.listing import SegmentFilter
    from tierlog.remote.tier.objects.object_keys import FOOTER

    found = list(tier.find_candidates(SegmentFilter.of(None, choice.pattern, partition or None)))
    return wanted.estimate(len(found), sum(FOOTER in each.objects for each in found))


def _segments_of(histories: Sequence[PartitionHistory]) -> list[StoredSegment]:
    """Return the segments of partitions, each once."""
    found: dict[str, StoredSegment] = {}
    for history in histories:
        for segment in (*(span.segment for span in history.lineage.spans), *history.unreferenced):
            found[segment.name] = segment
    return list(found.values())


def _print_segments(
    tier: Tier, history: PartitionHistory, output: Output, looks: Mapping[str, SegmentLook], *, records: bool
) -> None:
    from tierlog.scan.reading.tables import segments_table

    totals = {name: look.totals for name, look in looks.items() if look.totals is not None}
    rows = _plain(segments_table([history], totals=totals).to_pylist())
    for row in rows:
        look = looks.get(str(row["object"]))
        row["firstTimestamp"] = None if look is None else look.first_timestamp_ms
        row["layout"] = tier.layout
    if output is Output.JSON:
        _print_json(rows)
    else:
        _print_text(history, rows, _prefixes(tier, history), records=records)
    for warning in history.warnings:
        complain(f"warning: {warning}")


def _print_json(rows: Sequence[Row]) -> None:
    for row in rows:
        print(json.dumps({**row, "state": _state(row)}, ensure_ascii=False))


def _print_text(history: PartitionHistory, rows: Sequence[Row], prefixes: Sequence[str], *, records: bool) -> None:
    size_bytes = sum(row["sizeBytes"] for row in {str(row["object"]): row for row in rows}.values())
    print(
        one_line(
            f"{history.topic}-{history.partition}  id {history.topic_id_partition.topic_id}  "
            f"offsets {history.earliest_offset} to {history.end_offset_exclusive - 1}  "
            f"{len({row['object'] for row in rows})} segments  {size_bytes} bytes  "
            f"layout {rows[0]['layout']}{_below(prefixes)}"
        )
        if rows
        else one_line(f"{history.topic}-{history.partition}  no segments")
    )
    lines = [_HEADINGS, *map(_cells, rows)]
    if records:
        counts = ["RECORDS", *("-" if row["recordCount"] is None else str(row["recordCount"]) for row in rows)]
        lines = [(*line[:2], count, *line[2:]) for line, count in zip(lines, counts, strict=True)]
    for line in table(lines, numbers=5 if records else 4):
        print(f"  {line}")
    for gap in history.gaps:
        print(f"  GAP: no segment holds offsets {gap.first_offset} to {gap.end_offset_exclusive - 1}")


def _below(prefixes: Sequence[str]) -> str:
    told = ", ".join(each or "no prefix" for each in prefixes)
    return f"  prefix {told}" if any(prefixes) else ""


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row["startOffset"]),
        str(row["endOffset"]),
        str(row["sizeBytes"]),
        str(row["storedBytes"]),
        _time(row["firstTimestamp"]),
        _time(row["maxTimestamp"]),
        epochs_text(row["leaderEpochs"]) or "-",
        _state(row),
        one_line(str(row["segment"])),
    )


def _time(value: object) -> str:
    return utc_text(value) if isinstance(value, int) else "-"


def _state(row: Row) -> str:
    if not row["referenced"]:
        return "unreferenced"
    if (row["firstOffset"], row["lastOffset"]) != (row["startOffset"], row["endOffset"]):
        return f"cut {row['firstOffset']}-{row['lastOffset']}"
    return "live" if row["closed"] else "active"
