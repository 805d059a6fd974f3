"""From PATH and options to an open tier."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from tierlog.remote.metadata.metadata_view import MetadataView
    from tierlog.remote.tier import Tier


@functools.cache
def config_keys(config: Path | None, others: frozenset[str] = frozenset()) -> Mapping[str, str] | None:
    """The keys of ``--config FILE``, where ``-`` is stdin. The file is read once, since a pipe can be read only once.

    Args:
        config: The file.
        others: Keys of a broker that are taken besides those of the tier.

    Raises:
        ConfigError: as ``read_property_file`` says.
    """
    from tierlog.remote.config.property_file import read_property_file
    from tierlog.runtime.machine import Machine

    if config is None:
        return None
    return read_property_file("/dev/stdin" if str(config) == "-" else str(config), Machine().files, others=others)


def open_path(
    path: str,
    *,
    layout: str = "auto",
    config: Path | None = None,
    limited: bool = False,
    metadata: Sequence[str] | None = None,
    command_config: Path | None = None,
) -> Tier:
    """The tier that PATH names, which the caller closes; with metadata that shows the segments that count, and no
    others.

    Raises:
        ConfigError: the configuration file or PATH's scheme is wrong, or nothing can be concluded from the metadata.
        CorruptDataError: the metadata is damaged.
        StoreError and its kinds: the path does not exist, or access is refused.
    """
    from tierlog import opening

    check_command_config(metadata, command_config)
    return opening.open_path(
        path,
        layout=layout,
        config=config_keys(config),
        metadata=metadata or None,
        metadata_client=command_keys(command_config),
        limited=limited,
    )


def read_metadata(
    sources: Sequence[str], command_config: Path | None = None, *, remember_departed: bool = False
) -> MetadataView:
    """What ``--metadata`` says, read to its end. Raises: as ``open_metadata``; ConfigError also for the file."""
    from tierlog import opening

    return opening.read_metadata(sources, command_keys(command_config), remember_departed=remember_departed)


def check_command_config(metadata: Sequence[str] | None, command_config: Path | None) -> None:
    """Raises ConfigError: the one is given without the other, and would have no effect."""
    if command_config is not None and not metadata:
        raise ConfigError("--command-config says how the Kafka of --metadata is reached, which is not given")


def command_keys(command_config: Path | None) -> dict[str, str]:
    """The keys of ``--command-config``; none without it. Raises ConfigError: the file is malformed. StoreError."""
    from tierlog.runtime.machine import Machine
    from tierlog.runtime.machine.properties import parse_properties

    if command_config is None:
        return {}
    data = Machine().files.read_stream(str(command_config), limit_bytes=1 << 20)
    try:
        return dict(parse_properties(data.decode("utf-8")))
    except ValueError as error:
        raise ConfigError(f"{command_config}: {error}") from None


def is_file(path: str) -> bool:
    """Whether PATH is one file of this machine."""
    from tierlog import opening
    from tierlog.runtime.machine import Machine

    return opening.names_file(path, Machine())
