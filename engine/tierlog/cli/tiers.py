"""From PATH and options to an open tier."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierlog.remote.storage import Tier


@functools.cache
def config_keys(config: Path | None) -> Mapping[str, str] | None:
    """The keys of ``--config FILE``, where ``-`` is stdin. The file is read once, since a pipe can be read only once.

    Raises:
        ConfigError: as ``read_property_file`` says.
    """
    from tierlog.remote.storage.config.property_file import read_property_file
    from tierlog.runtime.machine import Machine

    if config is None:
        return None
    return read_property_file("/dev/stdin" if str(config) == "-" else str(config), Machine().files)


def open_path(path: str, *, layout: str = "auto", config: Path | None = None, limited: bool = False) -> Tier:
    """The tier that PATH names, which the caller closes.

    Raises:
        ConfigError: the configuration file or PATH's scheme is wrong.
        StoreError and its kinds: the path does not exist, or access is refused.
    """
    from tierlog.remote.storage import open_tier

    return open_tier(path, layout=layout, config=config_keys(config), limited=limited)


def is_file(path: str) -> bool:
    """Whether PATH is one file of this machine."""
    from tierlog.runtime.machine import Machine

    found = None if "://" in path else Machine().files.find(path)
    return found is not None and not found.is_directory
