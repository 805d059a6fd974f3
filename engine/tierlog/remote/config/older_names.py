"""Older spellings of keys, from earlier releases or from documents: accepted, with a warning that names today's key."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from tierlog.errors import ConfigError

_log = logging.getLogger(__name__)

#: Released spelling (2023-11 to 2024-04) → today's.
OLDER_PREFIXES: Final = {
    "segment.manifest.cache.": "fetch.manifest.cache.",
    "chunk.cache.": "fetch.chunk.cache.",
}
#: In the plugin's README and in tutorials, but no release ever read it: objects lie without a prefix.
NEVER_READ: Final = "storage.key.prefix"


def with_todays_names(keys: Mapping[str, str]) -> dict[str, str]:
    """The keys under today's names. Keys that no release ever read are left out.

    Raises:
        ConfigError: both spellings of one key, with different values.
    """
    found = {key: value for key, value in keys.items() if not key.startswith(tuple(OLDER_PREFIXES))}
    if found.pop(NEVER_READ, None) is not None:
        _log.warning(
            "%s is ignored, as the plugin ignores it: its objects lie without that prefix; today's name is key.prefix",
            NEVER_READ,
        )
    for key, value in keys.items():
        prefix = next((prefix for prefix in OLDER_PREFIXES if key.startswith(prefix)), None)
        if prefix is None:
            continue
        name = OLDER_PREFIXES[prefix] + key.removeprefix(prefix)
        _log.warning("%s is an older spelling: it is called %s today", key, name)
        if found.setdefault(name, value) != value:
            raise ConfigError(f"{key} and {name} are one key, and their values differ")
    return found
