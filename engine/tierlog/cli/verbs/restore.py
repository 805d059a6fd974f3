"""``tierlog restore``: the metadata of a bucket's segments, from the bucket alone."""

from __future__ import annotations

import base64
import collections
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import ExitCode, complain, guarded, one_line
from tierlog.cli.options import (
    CommandConfigOption,
    ConfigOption,
    LayoutName,
    LayoutOption,
    Output,
    OutputOption,
    PartitionOption,
)
from tierlog.cli.tiers import command_keys, config_keys, open_path
from tierlog.cli.times import utc_text
from tierlog.cli.verbs.export import parsed_target
from tierlog.errors import ConfigError, UnknownTopicError

if TYPE_CHECKING:
    from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
    from tierlog.remote.tier import Tier
    from tierlog.runtime.machine import Machine
    from tierlog.upkeep.copying.segment_source import TopicMap
    from tierlog.upkeep.exporting.broker_directory import TargetCluster
    from tierlog.upkeep.restoring.bucket_metadata import (
        BucketMetadata,
        LeftOutSegment,
        RestoredPartition,
        RestoredSegment,
    )
    from tierlog.upkeep.restoring.restore_targets import RestoreTarget

_COPY_BYTES_MAX = 1 << 30
_QUIET_MINUTES = 10
_PARTITIONS = 50


def register(app: typer.Typer) -> None:
    app.command("restore")(guarded(restore))


def restore(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="The bucket, as the storage manager has it: a URL or folder, key.prefix below it. With --from-copy "
            "what `tierlog copy` printed; - is stdin.",
            show_default=False,
        ),
    ],
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Only these topics. ID:TOPIC picks one of two topics of the same name."),
    ] = None,
    partition: PartitionOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be restored; the default without --to.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FILE|DIR/|HOST:PORT",
            help="Where the metadata goes: a new snapshot file, a new folder of __remote_log_metadata-N (an empty one, "
            "or a path that ends in /), or the topic of a running Kafka (its bootstrap servers).",
        ),
    ] = None,
    from_copy: Annotated[
        bool, typer.Option("--from-copy", help="PATH is what `tierlog copy --output json` printed: register that.")
    ] = False,
    maps: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OLD=NEW", help="Register topic id OLD as NEW, of a topic that was made anew."),
    ] = None,
    quiet_minutes: Annotated[
        float,
        typer.Option(
            "--quiet-minutes",
            metavar="N",
            min=0,
            help="Refuse if an object is younger: nothing in a bucket keeps a broker from writing. 0 never refuses.",
        ),
    ] = _QUIET_MINUTES,
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="Of the metadata topic that the folder is for.")
    ] = _PARTITIONS,
    topic_id: Annotated[
        str | None,
        typer.Option("--topic-id", metavar="ID", help="For a folder: the id of __remote_log_metadata in its cluster."),
    ] = None,
    for_cluster: Annotated[
        str | None,
        typer.Option("--for-cluster", metavar="ID", help="Make a folder the log directory of a broker there."),
    ] = None,
    node_id: Annotated[
        int | None, typer.Option("--node-id", metavar="N", help="With --for-cluster: the broker's node.id.")
    ] = None,
    directory_id: Annotated[
        str | None,
        typer.Option(
            "--directory-id",
            metavar="ID",
            help="With --for-cluster: directory.id in the meta.properties of the log directory that is replaced.",
        ),
    ] = None,
    command_config: CommandConfigOption = None,
    config: ConfigOption = None,
    layout: LayoutOption = LayoutName.AUTO,
    output: OutputOption = Output.TEXT,
) -> ExitCode:
    """Rebuild the remote log metadata of a cluster from its bucket alone.

    Every whole segment is registered as COPY_SEGMENT_FINISHED, dead branches and duplicates among them, with the
    offsets, size, time, leader epochs and custom metadata (by custom.metadata.fields.include of --config) that the lost
    topic had. The offsets that readers will see of each are told beside it. Segments that lack an object or cannot be
    read are named and left out; then the command ends with 1.

    What a bucket cannot tell: the broker and time of COPY_SEGMENT_FINISHED (those of the description, and of the last
    object, stand there), and deletions that had begun but removed nothing yet: such segments come back.

    JSON: one object for each segment, with the names of `ls` and "state": COPY_SEGMENT_FINISHED, or null and "reason".
    """
    from tierlog.cli.topics import check_topic
    from tierlog.runtime.machine import Machine
    from tierlog.upkeep.copying.segment_source import TopicMap

    machine = Machine()
    mapped = TopicMap.parse(maps or ())
    for topic in topics or ():
        check_topic(path, topic)
    cluster = parsed_target(for_cluster, node_id, topic_id if for_cluster else None, directory_id)
    with ExitStack() as held:
        target = None
        if to is not None:
            place = (partitions, _parsed_id(topic_id), cluster, command_config)
            target = held.enter_context(_target(to, machine, *place))
        if from_copy:
            return _register_copied(path, target, to, machine, output, dry_run=dry_run)
        tier = held.enter_context(open_path(path, layout=layout, config=config))
        bucket = held.enter_context(_bucket(tier, config, machine, topics, partition, mapped))
        if target is not None:
            seen: set[str] = set()
            newest = bucket.survey(partial(_look, target, seen))
            _require_found(tier, topics or (), seen, mapped, bucket)
            _check_quiet(newest, quiet_minutes, machine, refuses=not dry_run)
            target.check(partial(_all_of, bucket))
        run = _Run(tier, path, config, mapped, output)
        for found in bucket.iter_partitions():
            if target is not None and not dry_run:
                _check_quiet((found.newest_ms, found.newest), quiet_minutes, machine, refuses=True)
                for segment in found.segments:
                    target.add(segment.metadata, started_ms=segment.started_ms)
            run.say(found)
        if target is not None and not dry_run:
            target.finish()
        elif target is None:
            _require_found(tier, topics or (), run.topics, mapped, bucket)
            _check_quiet(run.newest, quiet_minutes, machine, refuses=False)
        run.sum_up(to, None if dry_run else target)
    return ExitCode.FAULTS_FOUND if run.left_out else ExitCode.DONE


def _look(target: RestoreTarget, seen: set[str], segment_id: RemoteLogSegmentId) -> None:
    seen.add(segment_id.topic_id_partition.topic)
    target.look(segment_id)


def _require_found(
    tier: Tier, topics: Iterable[str], seen: Collection[str], mapped: TopicMap, bucket: BucketMetadata
) -> None:
    """Raises UnknownTopicError, ConfigError: a topic or an old id that was given is not in the bucket."""
    from tierlog.scan.topic_name import TopicName

    for topic in topics:
        if TopicName.parse(topic).name not in seen:
            raise UnknownTopicError(f"{tier.describe()}: no topic {topic}")
    missing = sorted(map(str, mapped.new_ids.keys() - bucket.found_old_ids))
    if missing:
        raise ConfigError(f"--map: the bucket has no topic of id {', '.join(missing)}")


def _all_of(bucket: BucketMetadata) -> Iterator[tuple[RemoteLogSegmentMetadata, int]]:
    return ((each.metadata, each.started_ms) for found in bucket.iter_partitions() for each in found.segments)


def _register_copied(
    path: str, target: RestoreTarget | None, to: str | None, machine: Machine, output: Output, *, dry_run: bool
) -> ExitCode:
    """The segments that ``tierlog copy`` printed, restored without a look at a bucket."""
    from tierlog.upkeep.restoring.copied_segments import read_copied

    data = machine.files.read_stream("/dev/stdin" if path == "-" else path, limit_bytes=_COPY_BYTES_MAX)
    copied = list(read_copied(data.decode("utf-8", "replace").splitlines()))
    there = [each.metadata for each in copied if each.metadata is not None]
    if target is not None:
        for metadata in there:
            target.look(metadata.remote_log_segment_id)
        target.check(lambda: ((each, each.event_timestamp_ms) for each in there))
    for metadata in there:
        if target is not None and not dry_run:
            target.add(metadata, started_ms=metadata.event_timestamp_ms)
        partition = metadata.topic_id_partition
        told = {
            "topic": partition.topic,
            "topicId": str(partition.topic_id),
            "partition": partition.partition,
            "segment": str(metadata.remote_log_segment_id.id),
            "startOffset": metadata.start_offset,
            "endOffset": metadata.end_offset,
            "state": metadata.state.name,
        }
        if output is Output.JSON:
            print(json.dumps(told, ensure_ascii=False))
        else:
            print(one_line(f"{metadata.remote_log_segment_id}  {metadata.start_offset}-{metadata.end_offset}"))
    for each in copied:
        if each.error is not None:
            complain(f"left out: {each.name}: it was not copied: {each.error}")
    if target is not None and not dry_run:
        target.finish()
    if output is Output.TEXT:
        print(one_line(f"{len(there)} segments: {_told(len(there), to, None if dry_run else target)}"))
    return ExitCode.FAULTS_FOUND if len(there) < len(copied) else ExitCode.DONE


def _told(segments: int, to: str | None, target: RestoreTarget | None) -> str:
    """The end of the last line. ``target`` is None where nothing is to be written."""
    if target is None:
        return "would be registered (nothing was written)"
    if target.known < segments:
        return f"written to {to}" if not target.known else f"{segments - target.known} of them written to {to}"
    return f"nothing was written: {to} knows them all" if segments else f"no segment was written to {to}"


@contextmanager
def _bucket(
    tier: Tier,
    config: Path | None,
    machine: Machine,
    topics: list[str] | None,
    partitions: list[int] | None,
    mapped: TopicMap,
) -> Iterator[BucketMetadata]:
    from tierlog.remote.config import read_storage_config
    from tierlog.scan.topic_name import TopicName
    from tierlog.upkeep.restoring.bucket_metadata import BucketMetadata

    names = [TopicName.parse(topic) for topic in topics or ()]

    def wanted(partition: TopicIdPartition) -> bool:
        if partitions and partition.partition not in partitions:
            return False
        return not names or any(name.accepts(partition) for name in names)

    read = read_storage_config(config_keys(config), machine=machine)
    with BucketMetadata(tier, read, wanted=wanted, topics=mapped) as bucket:
        yield bucket


@contextmanager
def _target(
    to: str,
    machine: Machine,
    partitions: int,
    topic_id: Uuid | None,
    cluster: TargetCluster | None,
    command_config: Path | None,
) -> Iterator[RestoreTarget]:
    from tierlog.remote.metadata.cluster_topic import is_bootstrap
    from tierlog.upkeep.restoring.restore_targets import SnapshotFile, TopicFolder

    there = machine.files.find(to)
    if there is None and is_bootstrap(to):
        from tierlog.remote.metadata.topic_backed.kafka_log import open_cluster_log
        from tierlog.runtime.kafka.client_keys import client_settings
        from tierlog.runtime.kafka.topic_admin import TopicAdmin
        from tierlog.upkeep.restoring.topic_writer import TopicWriter

        client_keys = command_keys(command_config)
        with ExitStack() as held:
            log = open_cluster_log(to, client_keys=client_keys, writable=True, machine=machine)
            held.enter_context(log)
            settings = client_settings("admin", {**client_keys, "bootstrap.servers": to}, client_id="tierlog-restore")
            topics = held.enter_context(TopicAdmin(settings, machine=machine))
            writer = TopicWriter(log, machine, topics=topics)
            writer.read_topic()
            yield writer
    elif to.endswith("/") or (there is not None and there.is_directory):
        folder = to.rstrip("/") or "/"
        yield TopicFolder(folder, partition_count=partitions, machine=machine, topic_id=topic_id, target=cluster)
    else:
        with closing(SnapshotFile(to, machine=machine)) as snapshot:
            yield snapshot


def _parsed_id(text: str | None) -> Uuid | None:
    from tierlog.remote.api import Uuid

    try:
        return None if text is None else Uuid.from_text(text)
    except ValueError as error:
        raise ConfigError(f"--topic-id {text!r:.40}: {error}") from None


def _check_quiet(newest: tuple[int, str], quiet_minutes: float, machine: Machine, *, refuses: bool) -> None:
    """Raises ConfigError: the newest object is too young; or says so on stderr."""
    newest_ms, key = newest
    age_ms = machine.clock.time_ms() - newest_ms
    if newest_ms < 0 or quiet_minutes == 0 or age_ms >= quiet_minutes * 60_000:
        return
    text = (
        f"{key} was written {max(0, age_ms) // 1000} s ago, and nothing in a bucket keeps a broker from going on: stop "
        "the brokers, or the managers, that write to it"
    )
    if refuses:
        raise ConfigError(f"{text}; then wait {quiet_minutes:g} min (--quiet-minutes)")
    complain(f"warning: {text}")


class _Run:
    """The segments and faults that one run of restore has found, counted and printed."""

    def __init__(self, tier: Tier, path: str, config: Path | None, mapped: TopicMap, output: Output) -> None:
        self._tier = tier
        self._path = path
        self._config = config
        self._mapped = mapped
        self._output = output
        self._partitions = self._segments = self._size_bytes = 0
        self._moved: collections.Counter[tuple[str, Uuid, Uuid]] = collections.Counter()
        self.topics: set[str] = set()
        self.newest = (-1, "")
        self.left_out = 0

    def say(self, found: RestoredPartition) -> None:
        """Print one partition."""
        self._partitions += bool(found.segments)
        self._segments += len(found.segments)
        self._size_bytes += sum(segment.metadata.segment_size_in_bytes for segment in found.segments)
        self.left_out += len(found.left_out)
        self.newest = max(self.newest, (found.newest_ms, found.newest))
        for segment in found.segments:
            if segment.moved:
                was = segment.stored.topic_id_partition
                self._moved[was.topic, was.topic_id, segment.metadata.topic_id_partition.topic_id] += 1
        self.topics.add(found.topic_id_partition.topic)
        spans: dict[Uuid, list[tuple[int, int]]] = {}
        for span in found.history.spans if found.history else ():
            segment_id = span.segment.metadata.remote_log_segment_id.id
            spans.setdefault(segment_id, []).append((span.first_offset, span.end_offset_exclusive - 1))
        if self._output is Output.JSON:
            for segment in found.segments:
                told = _as_dict(segment, spans.get(segment.metadata.remote_log_segment_id.id, []))
                print(json.dumps(told | {"layout": self._tier.layout}, ensure_ascii=False))
            for left in found.left_out:
                print(json.dumps(_left_as_dict(left), ensure_ascii=False))
        else:
            _print_text(found, spans)
        for left in found.left_out:
            complain(f"left out: {left.name}: {left.reason}")
        for warning in found.history.warnings if found.history else ():
            complain(f"warning: {warning}")

    def sum_up(self, to: str | None, target: RestoreTarget | None) -> None:
        """Print what was done, and what is still to be done for mapped topics."""
        for (topic, old, new), count in sorted(self._moved.items()):
            where = f"{count} segments of {topic} lie under its old id {old}"
            copy = f"tierlog copy {self._path} {self._path} {old}:{topic} --map {old}={new}"
            if self._config is not None:
                copy += f" --config {self._config} --dest-config {self._config}"
            if self._tier.layout == "kafka":
                complain(f"note: {where}: Tierlog's storage manager finds them there by their custom metadata")
            elif self._tier.layout == "local-tiered":
                complain(f"note: {where}, where LocalTieredStorage does not look: rename their folders first")
            else:
                complain(
                    f"note: {where}: Tierlog's storage manager finds them by their custom metadata; Aiven's plugin "
                    f"looks below {new} only, and needs `{copy}` first, then this command again"
                )
        if self._output is Output.TEXT:
            left = f", {self.left_out} left out" if self.left_out else ""
            counted = f"{self._segments} segments of {self._partitions} partitions, {self._size_bytes} bytes{left}"
            print(one_line(f"{counted}: {_told(self._segments, to, target)}"))


def _as_dict(segment: RestoredSegment, spans: Sequence[tuple[int, int]]) -> dict[str, object]:
    metadata, stored = segment.metadata, segment.stored
    custom = metadata.custom_metadata
    return {
        "topic": metadata.topic_id_partition.topic,
        "topicId": str(metadata.topic_id_partition.topic_id),
        "partition": metadata.topic_id_partition.partition,
        "segment": str(metadata.remote_log_segment_id.id),
        "object": stored.name,
        "startOffset": metadata.start_offset,
        "endOffset": metadata.end_offset,
        "firstOffset": spans[0][0] if spans else None,
        "lastOffset": spans[-1][1] if spans else None,
        "referenced": bool(spans),
        "visible": [list(span) for span in spans],
        "sizeBytes": metadata.segment_size_in_bytes,
        "storedBytes": segment.stored_bytes,
        "maxTimestamp": metadata.max_timestamp_ms,
        "eventTimestamp": metadata.event_timestamp_ms,
        "startedTimestamp": segment.started_ms,
        "lastModified": stored.last_modified_ms,
        "brokerId": metadata.broker_id,
        "leaderEpochs": {str(epoch): start for epoch, start in metadata.segment_leader_epochs.items()},
        "customMetadata": None if custom is None else base64.b64encode(custom).decode("ascii"),
        "txnIndexEmpty": metadata.txn_idx_empty,
        "compression": stored.compression,
        "encryptionKeyId": stored.encryption.key_id if stored.encryption else None,
        "state": metadata.state.name,
    }


def _left_as_dict(left: LeftOutSegment) -> dict[str, object]:
    return {
        "topic": left.partition.topic,
        "topicId": str(left.partition.topic_id),
        "partition": left.partition.partition,
        "segment": str(left.segment_id) if left.segment_id else None,
        "object": left.name,
        "startOffset": left.start_offset if left.start_offset >= 0 else None,
        "state": None,
        "reason": left.reason,
    }


def _print_text(found: RestoredPartition, spans: Mapping[Uuid, Sequence[tuple[int, int]]]) -> None:
    partition, history = found.topic_id_partition, found.history
    if history is None:
        return
    last_epoch = max((epoch for epoch, _ in history.lineage.epochs), default=0)
    print(
        one_line(
            f"{partition}  id {partition.topic_id}  readers will see offsets {history.earliest_offset} to "
            f"{history.end_offset_exclusive - 1}  {len(found.segments)} segments  last leader epoch {last_epoch}"
        )
    )
    for segment in found.segments:
        metadata = segment.metadata
        seen = spans.get(metadata.remote_log_segment_id.id, ())
        whole = [(metadata.start_offset, metadata.end_offset)]
        shown = "live" if list(seen) == whole else ",".join(f"cut {a}-{b}" for a, b in seen) or "unreferenced"
        epochs = ",".join(f"{epoch}:{start}" for epoch, start in metadata.segment_leader_epochs.items())
        time = utc_text(metadata.max_timestamp_ms) if metadata.max_timestamp_ms >= 0 else "-"
        print(
            f"  {metadata.start_offset}-{metadata.end_offset}  {metadata.segment_size_in_bytes} bytes  until {time}  "
            f"epochs {epochs}  {shown}  {metadata.remote_log_segment_id.id}"
        )
    for gap in history.gaps:
        print(f"  GAP: no segment holds offsets {gap.first_offset} to {gap.end_offset_exclusive - 1}")
