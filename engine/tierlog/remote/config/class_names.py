"""Java class names of the plugin's configuration, in our words: a broker's file works unchanged.

A class that has no counterpart here is an error: silence would be another store, another cache, or other credentials
than the operator asked for.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from tierlog.errors import ConfigError
from tierlog.remote.config.shown_values import quoted

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


def our_name(key: str, given: str, known: Mapping[str, str], *, dotted: bool = False) -> str:
    """The counterpart of a class: our name for it, or the given one if it is ours already.

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
