"""Classes by name: the plugin's Java classes in our words, and classes of third parties by their dotted path.

A broker's file works unchanged. A class that has no counterpart here is an error: silence would be another store,
another cache, or other credentials than the operator asked for.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Mapping
from typing import Final, TypeVar

from tierlog.errors import ConfigError
from tierlog.remote.api import RemoteLogMetadataManager, RemoteStorageManager
from tierlog.remote.config.validation import quoted

_PLUGIN: Final = "io.aiven.kafka.tieredstorage"
_AWS: Final = "software.amazon.awssdk.auth.credentials"
#: Where Java classes live that a broker's file may name; nothing of Python's is found there.
_JAVA: Final = re.compile(r"(?:io\.aiven|org\.apache|software\.amazon|com\.(?:google|azure|amazonaws)|java|javax)\.")
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")

BACKENDS: Final = {
    f"{_PLUGIN}.storage.s3.S3Storage": "s3",
    f"{_PLUGIN}.storage.gcs.GcsStorage": "gcs",
    f"{_PLUGIN}.storage.azure.AzureBlobStorage": "azure",
    f"{_PLUGIN}.storage.filesystem.FileSystemStorage": "filesystem",
}
CHUNK_CACHES: Final = {
    f"{_PLUGIN}.fetch.cache.MemoryChunkCache": "memory",
    f"{_PLUGIN}.fetch.cache.DiskChunkCache": "disk",
    # As of November 2023.
    f"{_PLUGIN}.chunkmanager.cache.InMemoryChunkCache": "memory",
    f"{_PLUGIN}.chunkmanager.cache.DiskBasedChunkCache": "disk",
}
CREDENTIALS_PROVIDERS: Final = {
    f"{_AWS}.DefaultCredentialsProvider": "default",
    f"{_AWS}.EnvironmentVariableCredentialsProvider": "environment",
    f"{_AWS}.ProfileCredentialsProvider": "profile",
    f"{_AWS}.WebIdentityTokenFileCredentialsProvider": "web-identity",
    f"{_AWS}.ContainerCredentialsProvider": "container",
    f"{_AWS}.InstanceProfileCredentialsProvider": "instance",
    f"{_AWS}.AnonymousCredentialsProvider": "anonymous",
}
STORAGE_MANAGERS: Final = {
    f"{_PLUGIN}.RemoteStorageManager": "tierlog.remote.storage.tiered_storage_manager.TieredStorageManager",
}
METADATA_MANAGERS: Final = {
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager": (
        "tierlog.remote.metadata.topic_backed.topic_based_manager.TopicBasedRemoteLogMetadataManager"
    ),
}

#: Kafka's own default.
DEFAULT_METADATA_MANAGER: Final = next(iter(METADATA_MANAGERS))
STORAGE_MANAGER_KEY: Final = "remote.log.storage.manager.class.name"
METADATA_MANAGER_KEY: Final = "remote.log.metadata.manager.class.name"
Manager = TypeVar("Manager")


def our_name(key: str, given: str, known: Mapping[str, str], *, dotted: bool = False) -> str:
    """Return the counterpart of a class: our name for it, or the given one if it is ours already.

    Args:
        key: The configuration key, for messages.
        given: Its value.
        known: Java class → our name.
        dotted: Whether the dotted path of a Python class is accepted too.

    Raises:
        ConfigError: the class is unknown; the message lists those that are known.
    """
    if given in known:
        return known[given]
    if given in known.values():
        return given
    java = _JAVA.match(given) is not None
    if dotted and not java and _DOTTED.fullmatch(given):
        return given
    names = ", ".join(dict.fromkeys(known.values()))
    near = difflib.get_close_matches(given, list(known), n=1)
    hint = f"; the nearest known one is {near[0]}" if near else ""
    what = "this Java class has no counterpart here" if java else "unknown"
    python = ", or the dotted path of a Python class" if dotted else ""
    shown = quoted(given, " ".join((names, *known)))
    raise ConfigError(f"Invalid value{shown} for configuration {key}: {what}{hint}; use one of {names}{python}")


def load_class(path: str, *, key: str) -> type:
    """Load the class of a dotted path, ``package.module.Class``.

    Raises:
        ConfigError: there is no such module or class, or the module fails to load; the message names the key.
    """
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as cause:  # the module's own code runs here: whatever it raises, the key is wrong
        raise ConfigError(f"{key}: cannot load {module}: {type(cause).__name__}: {cause}") from cause
    if not isinstance(found, type):
        raise ConfigError(f"{key}: {module} has no class {name}")
    return found


def load_manager(key: str, name: str, known: Mapping[str, str], interface: type[Manager], **of_ours: object) -> Manager:
    """Make an instance of a manager, not yet configured.

    Args:
        key: The configuration key, for messages.
        name: Its value: a Java class that is known, or the dotted path of a Python class that takes no arguments.
        known: Java class → the dotted path of ours.
        interface: The class that it must implement.
        of_ours: Arguments of ours; a third party's class takes none.

    Raises:
        ConfigError: the class cannot be loaded, or does not implement the interface.
    """
    path = our_name(key, name, known, dotted=True)
    kind = load_class(path, key=key)
    if not issubclass(kind, interface):
        raise ConfigError(f"{key}: {name} is no {interface.__name__}")
    try:
        return kind(**of_ours) if path in known.values() else kind()
    except TypeError as cause:
        raise ConfigError(f"{key}: {name}: {cause}") from cause


def load_storage_manager(name: str, **of_ours: object) -> RemoteStorageManager:
    """Make a storage manager, not yet configured: by the plugin's Java class, or the dotted path of a Python class.

    Args:
        name: The class.
        of_ours: Arguments of TieredStorageManager, if it is that one.

    Raises:
        ConfigError: as ``load_manager``.
    """
    return load_manager(STORAGE_MANAGER_KEY, name, STORAGE_MANAGERS, RemoteStorageManager, **of_ours)  # type: ignore[type-abstract]


def load_metadata_manager(name: str = DEFAULT_METADATA_MANAGER, **of_ours: object) -> RemoteLogMetadataManager:
    """Make a metadata manager, not yet configured: by Kafka's Java class, or the dotted path of a Python class.

    Raises:
        ConfigError: as ``load_manager``.
    """
    return load_manager(METADATA_MANAGER_KEY, name, METADATA_MANAGERS, RemoteLogMetadataManager, **of_ours)  # type: ignore[type-abstract]
