"""From PATH and options to an open tier."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierlog.remote.storage import Tier


def open_path(path: str, *, layout: str = "auto", config: Path | None = None, limited: bool = False) -> Tier:
    """The tier that PATH names. Its close is the caller's. See open_tier.

    Raises:
        ConfigError: the configuration file or PATH's scheme.
        StoreError and its kinds: the path is not there, or refuses.
    """
    from tierlog.remote.storage import open_tier

    given = None if config is None else {"rsm.config.file": str(config)}
    return open_tier(path, layout=layout, config=given, limited=limited)


def is_file(path: str) -> bool:
    """Whether PATH is one file of this machine."""
    from tierlog.runtime.machine import Machine

    found = None if "://" in path else Machine().files.find(path)
    return found is not None and not found.is_directory
