"""The open tier of a caller's path, configuration and metadata.

``tierlog.read``, ``tierlog.topics``, the jobs of ``tierlog.upkeep`` and the command's verbs open their tiers here.

What belongs here: the forms in which a Python caller gives these, and their checks. What does not: reads of a tier
(``tierlog.scan``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tierlog.arguments import require_names, require_path, require_text, require_type, wrong_type
from tierlog.errors import ConfigError
from tierlog.remote.tier import open_tier
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine

if TYPE_CHECKING:
    from tierlog.remote.metadata.metadata_view import MetadataView

#: A path or a URL.
Path = str | os.PathLike[str]

#: The storage plugin's keys, with or without ``rsm.config.``; or the path of a file of them.
Config = Mapping[str, str] | str | os.PathLike[str]

#: One source of metadata, or several that add up.
Metadata = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class TierLocation:
    """The arguments with which another process opens a tier: picklable, small.

    Attributes:
        path, layout, limited, all_footers: Arguments of ``open_tier``.
        config: The keys that the user gave. They may hold secrets and are in no ``repr``.
    """

    path: str
    layout: str
    config: Mapping[str, str] = field(repr=False)
    limited: bool = False
    all_footers: bool = False

    def opened(self) -> Tier:
        """Return the opened tier. Credentials that the user did not give are found by the process that opens it."""
        return open_tier(
            self.path, layout=self.layout, config=self.config, limited=self.limited, all_footers=self.all_footers
        )


def open_path(
    path: Path,
    *,
    config: Config | None = None,
    layout: str = "auto",
    metadata: Metadata | None = None,
    metadata_client: Mapping[str, str] | None = None,
    machine: Machine | None = None,
    limited: bool = False,
    list_once: bool = False,
    all_footers: bool = False,
) -> Tier:
    """Open the tier of a caller's arguments, which are those of ``tierlog.read``.

    Args:
        path: As for ``tierlog.open_tier``.
        config: The storage plugin's keys.
        layout: As for ``tierlog.open_tier``.
        metadata: What says which segments count; the tier has these, and no others.
        metadata_client: Keys of Kafka's client for metadata of a running Kafka.
        machine: The machine that the tier runs on; this machine by default.
        limited: As for ``tierlog.open_tier``.
        list_once: As for ``tierlog.open_tier``.
        all_footers: As for ``tierlog.open_tier``.

    Returns:
        A Tier; close it.

    Raises:
        TypeError: an argument is of another type; it is named. ConfigError: a key, the path's scheme or the layout is
        wrong, or nothing can be concluded from the metadata. CorruptDataError: the metadata is damaged. StoreError and
        its kinds: the path does not exist, or access is refused.
    """
    where = require_path("path", path)
    machine = given_machine(machine)
    named_layout, keys = require_text("layout", layout), config_keys(config)
    known = None
    if metadata is not None:
        if names_file(where, machine):
            raise ConfigError(f"{where} is a file: metadata says what a bucket holds")
        known = read_metadata(metadata, metadata_client, machine=machine)
    elif metadata_client:
        raise ConfigError("metadata_client says how the Kafka of metadata is reached, which is not given")
    return open_tier(
        where,
        layout=named_layout,
        config=keys,
        machine=machine,
        limited=limited,
        known=known,
        list_once=list_once,
        all_footers=all_footers,
    )


def read_metadata(
    metadata: Metadata,
    metadata_client: Mapping[str, str] | None = None,
    *,
    machine: Machine | None = None,
    remember_departed: bool = False,
) -> MetadataView:
    """Read the segments' metadata from the sources, to their end; errors as ``open_metadata``. Close the view."""
    from tierlog.remote.metadata.metadata_source import open_metadata  # a third of this module's import, for few

    if isinstance(metadata, str | os.PathLike):
        sources = [require_path("metadata", metadata)]
    elif isinstance(metadata, bytes | Mapping) or not isinstance(metadata, Iterable):
        raise wrong_type("metadata", metadata, "a path, or a sequence of paths")
    else:
        sources = [require_path("each of metadata", each) for each in metadata]
    client_keys = require_type("metadata_client", metadata_client or {}, Mapping, "a mapping of str to str")
    return open_metadata(sources, machine=machine, client_keys=client_keys, remember_departed=remember_departed)


def config_keys(config: Config | None) -> Mapping[str, str] | None:
    """Return the configuration as a mapping: a file is read by the key that names it."""
    if config is None or isinstance(config, Mapping):
        return config
    if not isinstance(config, str | os.PathLike):
        raise wrong_type("config", config, "a mapping, or the path of a file")
    return {"rsm.config.file": require_path("config", config)}


def given_machine(machine: Machine | None) -> Machine:
    """Return the machine of a caller; this one by default."""
    return Machine() if machine is None else require_type("machine", machine, Machine, "a Machine")


def names_file(path: str, machine: Machine) -> bool:
    """Whether the path is one file of the machine."""
    found = None if "://" in path else machine.files.find(path)
    return found is not None and not found.is_directory


def topic_names(topic: str | Iterable[str]) -> tuple[str, ...]:
    """Return the topics of a caller: one name or several. Raises ConfigError: there is none."""
    if isinstance(topic, str):
        names: tuple[str, ...] = (topic,)
    elif isinstance(topic, bytes | Mapping) or not isinstance(topic, Iterable):
        raise wrong_type("topic", topic, "a str, a sequence of str or a compiled pattern")
    else:
        names = tuple(require_names("topic", topic))
    if not names or not all(names):
        raise ConfigError("topic names no topic")
    return names
