"""``tierlog orphans``: objects of a bucket that no segment owns."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import ExitCode
from tierlog.cli.options import (
    BucketArgument,
    CommandConfigOption,
    ConfigOption,
    LayoutName,
    LayoutOption,
    MetadataOption,
    Output,
    OutputOption,
)
from tierlog.cli.tiers import check_command_config, command_keys, config_keys
from tierlog.cli.times import UNITS_MS, parse_duration_ms
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from tierlog.upkeep import Orphan, OrphanReport


def orphans(
    path: BucketArgument,
    metadata: MetadataOption = None,
    command_config: CommandConfigOption = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Leave younger objects alone: 90s, 30m, 24h, 7d, 2w.")
    ] = "24h",
    delete: Annotated[bool, typer.Option("--delete", help="Delete the orphans; without it, only report them.")] = False,
    skip_unknown: Annotated[
        bool,
        typer.Option(
            "--skip-unknown",
            help="Leave segments alone that the metadata does not know, or may not know yet, instead of refusing.",
        ),
    ] = False,
    config: ConfigOption = None,
    layout: LayoutOption = LayoutName.AUTO,
    output: OutputOption = Output.TEXT,
) -> ExitCode:
    """Find objects that no segment owns, segments that lack objects, and uploads that were never finished.

    The bucket is listed first, then the metadata is read to its end. A segment owns its objects in every state but
    DELETE_SEGMENT_FINISHED. Without --metadata, every object that is not part of a whole segment counts. Objects whose
    keys are no segment's are never touched; segments that lack objects are named and not touched.

    The command refuses (2) if the metadata is empty, lacks its beginning, does not know a topic of the bucket, or is
    older than the bucket. With --delete ages are measured by the store's clock (a small object is written and removed),
    else by this machine's. Ends with 1 if orphans were found and still exist, with 3 at the first request that the
    store does not answer (within store.retry_timeout plus one store.timeout, 120 s).

    JSON: one object for each finding,
    {"kind","key","topic","partition","segmentId","sizeBytes","ageMs","reason","deleted"}.
    """
    from tierlog.upkeep import orphans as find_orphans

    check_command_config(metadata, command_config)
    report = find_orphans(
        path,
        metadata=metadata or None,
        metadata_client=command_keys(command_config),
        older_than=_age(older_than),
        delete=delete,
        skip_unknown=skip_unknown,
        config=config_keys(config),
        layout=layout,
        on_deleted=lambda orphan: _say(orphan, output, deleted=True),
    )
    left = report.left
    for orphan in left:
        _say(orphan, output, deleted=False)
    if output is Output.TEXT:
        _sum_up(report, len(left))
    return ExitCode.FAULTS_FOUND if left else ExitCode.DONE


def _say(orphan: Orphan, output: Output, *, deleted: bool) -> None:
    objects = len(orphan.keys) + orphan.has_description
    what = f"{objects} objects, {orphan.size_bytes} bytes, " if objects else ""
    done = "deleted: " if deleted else ""
    told = {
        "kind": str(orphan.kind),
        "key": orphan.key,
        "topic": orphan.partition.topic,
        "partition": orphan.partition.partition,
        "segmentId": None if orphan.segment_id is None else str(orphan.segment_id),
        "sizeBytes": orphan.size_bytes,
        "ageMs": orphan.age_ms,
        "reason": orphan.reason,
        "deleted": deleted,
    }
    output.show(told, f"{done}{orphan.kind}: {orphan.key}: {what}{_in_words(orphan.age_ms)} old: {orphan.reason}")


def _sum_up(report: OrphanReport, left: int) -> None:
    found = len(report.orphans)
    size_bytes = sum(orphan.size_bytes for orphan in report.orphans)
    alone = f", {report.left_alone} unknown to the metadata left alone" if report.left_alone else ""
    print(
        f"{report.objects} objects, {report.segments} whole segments, {report.foreign} foreign objects: "
        f"{found} found ({size_bytes} bytes), {found - left} deleted, {report.young} too young{alone}"
    )


def _in_words(age_ms: int) -> str:
    for unit in ("d", "h", "m"):
        if age_ms >= 2 * UNITS_MS[unit]:
            return f"{age_ms // UNITS_MS[unit]} {'min' if unit == 'm' else unit}"
    return f"{age_ms // 1000} s"


def _age(text: str) -> datetime.timedelta:
    age_ms = parse_duration_ms(text)
    if age_ms is None:
        raise ConfigError(f"--older-than {text!r}: a number and s, m, h, d or w expected, as 24h")
    try:
        return datetime.timedelta(milliseconds=age_ms)
    except OverflowError:
        return datetime.timedelta.max
