"""The metadata topic of a running Kafka, read once to where it ends now."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from tierlog.errors import ConfigError
from tierlog.remote.api import RetriableRemoteStorageException
from tierlog.remote.metadata.topic_backed.kafka_log import open_cluster_log
from tierlog.remote.metadata.topic_backed.metadata_log import METADATA_TOPIC, ValueRun
from tierlog.runtime.machine import Machine

_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
_READ_BYTES: Final = 8 << 20
_READ_SECONDS: Final = 5.0


def is_bootstrap(text: str) -> bool:
    """Whether a text has the form ``host:port[,host:port…]``; a file may have such a name too."""
    return all(map(_ADDRESS.fullmatch, text.split(",")))


def read_cluster_topic(
    bootstrap: str,
    take: Callable[[ValueRun, str], object],
    *,
    client_keys: Mapping[str, str] | None = None,
    timeout_seconds: float = 600.0,
    machine: Machine | None = None,
) -> None:
    """Read the metadata topic of a running Kafka, from its beginning to its end as of this call.

    Args:
        bootstrap: ``host:port[,host:port…]``.
        take: Is given each run, of one metadata partition in the order of its offsets, and where it is from, for
            messages. What it raises ends the reading.
        client_keys: Keys of Kafka's client, such as ``security.protocol``, as a broker's file has them.
        timeout_seconds: The longest that all of it may take.
        machine: Its clock and threads.

    Raises:
        ConfigError: there is no such topic, its oldest records are gone so that nothing can be concluded from it, a key
            is wrong, or confluent-kafka is not installed. RetriableRemoteStorageException: the cluster cannot be
            reached, or not all records came in the time. RemoteStorageException: it refuses us.
    """
    machine = machine or Machine()
    until = machine.clock.monotonic_seconds() + timeout_seconds
    with open_cluster_log(
        bootstrap, client_keys=client_keys, timeout_seconds=min(timeout_seconds, 30.0), machine=machine
    ) as log:
        left = until - machine.clock.monotonic_seconds()
        bounds = log.bounds(range(log.partition_count), timeout_seconds=min(left, 30.0))
        trimmed = {number: found.start_offset for number, found in bounds.items() if found.start_offset > 0}
        if trimmed:
            told = ", ".join(f"{METADATA_TOPIC}-{number} begins at {first}" for number, first in trimmed.items())
            raise ConfigError(
                f"{bootstrap}: the oldest metadata is gone ({told}): what it said of segments is not known"
            )
        positions = {number: 0 for number, found in bounds.items() if found.end_offset > 0}
        while positions:
            left = until - machine.clock.monotonic_seconds()
            if left <= 0:
                raise RetriableRemoteStorageException(
                    f"{bootstrap}: {METADATA_TOPIC} was not read to its end within {timeout_seconds:g} s"
                )
            runs = log.read(positions, max_bytes=_READ_BYTES, timeout_seconds=min(left, _READ_SECONDS))
            for run in runs:
                take(run, f"{bootstrap}: {METADATA_TOPIC}-{run.partition}")
                positions[run.partition] = run.next_offset
            for number in [each for each, at in positions.items() if at >= bounds[each].end_offset]:
                del positions[number]
