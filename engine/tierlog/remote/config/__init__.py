"""The RSM's configuration: every key of the plugin, ours beside them, checked before anything is touched.

What belongs here: names, kinds, ranges, defaults and meanings of keys, what keys demand of each other, older spellings,
classes by name (the plugin's Java classes, a third party's by its dotted path). Why: a mistyped key is the most common
fault of a tier, and the plugin ignores it. What does not: what keys do.
"""

from tierlog.remote.config.keys import KEY_GROUPS, KNOWN_KEYS
from tierlog.remote.config.storage_config import FILE_KEY, StorageConfig, read_storage_config

__all__ = ["FILE_KEY", "KEY_GROUPS", "KNOWN_KEYS", "StorageConfig", "read_storage_config"]
