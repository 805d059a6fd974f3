"""``tierlog.consume``: topics from their tier, and from brokers where that ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, get_args

from tierlog.arguments import require_flag, require_names, require_type
from tierlog.errors import ConfigError
from tierlog.opening import Config, Metadata, Path, given_machine, open_path, topic_names
from tierlog.runtime.machine import Machine
from tierlog.scan.live.live_tier import LiveTier
from tierlog.scan.live.loss_report import LossReport
from tierlog.scan.live.seams import Mode
from tierlog.scan.reading.read import DEFAULT_COLUMNS, records_schema
from tierlog.scan.scan_request import IsolationLevel, TopicSelection
from tierlog.tier_consumer import ConsumerReading, Start, TierConsumer

if TYPE_CHECKING:
    from tierlog.remote.metadata.metadata_view import MetadataView


def consume(
    path: Path,
    topics: str | Iterable[str],
    *,
    mode: Mode = "remote-only",
    kafka: Mapping[str, str] | None = None,
    start: Start = "earliest",
    columns: Iterable[str] | None = None,
    isolation_level: IsolationLevel = "read_uncommitted",
    config: Config | None = None,
    layout: str = "auto",
    metadata: Metadata | None = None,
    metadata_client: Mapping[str, str] | None = None,
    verify_checksums: bool = True,
    fail_on_data_loss: bool = True,
    refresh_seconds: float = 10.0,
    machine: Machine | None = None,
) -> TierConsumer:
    """Consume topics from their tier, and from brokers where that ends.

    Args:
        path: As for ``read``; not looked at in mode ``local-only``.
        topics: Names. All of their partitions are assigned; ``assign`` chooses others.
        mode: ``remote-only``: the tier alone, and the segments that it gains. ``remote-preferred``: the tier, then the
            brokers. ``local-only``: the brokers alone. (``local-preferred`` needs Spark's jar: librdkafka cannot ask
            where local logs begin.)
        kafka: Keys of Kafka's Java client, with ``bootstrap.servers``; with ``group.id`` offsets are committed. Its
            ``isolation.level`` can only be that of ``isolation_level``.
        start: Where partitions begin for which the group has committed no offset.
        columns: As for ``read``; with brokers ``segment`` is the tier's alone, and refused.
        isolation_level: As for ``read``.
        config: As for ``read``.
        layout: As for ``read``.
        metadata: As for ``read``.
        metadata_client: As for ``read``.
        verify_checksums: As for ``read``, of the tier's batches.
        fail_on_data_loss: False: records that are gone are named in a log warning, and passed over.
        refresh_seconds: The least time between two looks at the tier.
        machine: As for ``read``.

    Returns:
        The consumer. Close it, or leave its ``with`` block.

    Raises:
        TypeError: an argument is of another type. ConfigError, UnknownTopicError, CorruptDataError, StoreError and
        their kinds.
    """
    names = topic_names(topics)
    if mode not in get_args(Mode):
        raise ConfigError(f"mode is one of {', '.join(get_args(Mode))}, not {mode!r}")
    if start not in get_args(Start):
        raise ConfigError(f"start is 'earliest' or 'latest', not {start!r}")
    wanted = tuple(DEFAULT_COLUMNS if columns is None else require_names("columns", columns))
    records_schema(wanted)
    keys = dict(require_type("kafka", kafka or {}, Mapping, "a mapping of str to str"))
    _check_mode(mode, keys, wanted)
    _check_isolation(isolation_level, keys)
    machine = given_machine(machine)
    losses = LossReport(fails=require_flag("fail_on_data_loss", fail_on_data_loss))
    with ExitStack() as opened:
        live = None
        if mode != "local-only":
            tier = open_path(
                path,
                config=config,
                layout=layout,
                metadata=metadata,
                metadata_client=metadata_client,
                machine=machine,
            )
            live = LiveTier(
                opened.enter_context(tier),
                TopicSelection.of_names(names),
                losses,
                isolation_level=isolation_level,
                refresh_seconds=float(refresh_seconds),
                may_lack=mode != "remote-only",
                read_metadata=_metadata_reader(metadata, metadata_client, machine),
            )
        brokers = None
        if mode != "remote-only":
            from tierlog.scan.live.broker_logs import BrokerLogs

            brokers = opened.enter_context(BrokerLogs({**keys, "isolation.level": isolation_level}, machine=machine))
        reading = ConsumerReading(wanted, isolation_level, require_flag("verify_checksums", verify_checksums), losses)
        consumer = TierConsumer(names, live, brokers, reading, start=start, group=keys.get("group.id"), machine=machine)
        consumer.assign_all()
        opened.pop_all()
        return consumer


def _check_mode(mode: Mode, keys: Mapping[str, str], columns: Sequence[str]) -> None:
    if mode == "local-preferred":
        raise ConfigError(
            "mode local-preferred needs Spark's jar: librdkafka, which reads here, cannot ask where local logs begin"
        )
    if mode == "remote-only" and keys:
        raise ConfigError("kafka says how brokers are reached, which mode remote-only does not ask")
    if mode != "remote-only" and not keys.get("bootstrap.servers"):
        raise ConfigError(f"mode {mode} reads from brokers: kafka['bootstrap.servers'] names them")
    if mode != "remote-only" and "segment" in columns:
        raise ConfigError(f"columns names segment, which mode {mode} does not have: records of brokers come without")


def _check_isolation(isolation_level: IsolationLevel, keys: Mapping[str, str]) -> None:
    if isolation_level not in get_args(IsolationLevel):
        raise ConfigError(f"isolation_level is one of {', '.join(get_args(IsolationLevel))}, not {isolation_level!r}")
    given = keys.get("isolation.level", isolation_level)
    if given.strip().lower() != isolation_level:
        text = f"isolation.level of kafka is {given!r}, isolation_level {isolation_level!r}"
        raise ConfigError(f"{text}: the latter says what is read of the tier and of brokers")


def _metadata_reader(
    metadata: Metadata | None, client: Mapping[str, str] | None, machine: Machine
) -> Callable[[], MetadataView] | None:
    if metadata is None:
        return None
    from tierlog.scan.following.known_partitions import FollowedMetadata

    given = [metadata] if isinstance(metadata, str | os.PathLike) else list(metadata)
    sources = [os.fspath(each) for each in given]
    return FollowedMetadata(sources, client_keys=client, machine=machine).read
