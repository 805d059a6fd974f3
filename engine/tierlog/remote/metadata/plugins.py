"""Metadata managers by the name of their class: ours, and a third party's by its dotted path."""

from __future__ import annotations

from typing import Final

from tierlog.remote.api import RemoteLogMetadataManager
from tierlog.remote.config.class_names import METADATA_MANAGERS
from tierlog.remote.storage.plugins import load_manager

MANAGER_KEY: Final = "remote.log.metadata.manager.class.name"
#: Kafka's own default.
DEFAULT_MANAGER: Final = next(iter(METADATA_MANAGERS))


def load_metadata_manager(name: str = DEFAULT_MANAGER) -> RemoteLogMetadataManager:
    """A metadata manager, not yet configured: by Kafka's Java class, or the dotted path of a Python class.

    Raises:
        ConfigError: as ``tierlog.remote.storage.plugins.load_manager``.
    """
    return load_manager(MANAGER_KEY, name, METADATA_MANAGERS, RemoteLogMetadataManager)  # type: ignore[type-abstract]
