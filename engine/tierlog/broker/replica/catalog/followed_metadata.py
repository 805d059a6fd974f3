"""Metadata that is read again and again: files when they have changed, a running Kafka as often as that is cheap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tierlog.remote.metadata.metadata_log import METADATA_TOPIC
from tierlog.remote.metadata.metadata_source import is_bootstrap, open_metadata
from tierlog.remote.metadata.metadata_view import MetadataView
from tierlog.remote.tier.tier_paths import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.store_urls import local_path

#: A running Kafka is asked for its whole topic each time: no more often than this many times what that takes.
_PAUSES: Final = 10.0


class FollowedMetadata:
    """A source of metadata, read when it is asked for and may have changed. See ReadsMetadata.

    Views that were handed out are never closed here: they go with the last who uses them.

    Args:
        sources: As ``open_metadata`` takes them.
        client_keys: As ``open_metadata``.
        machine: Its files, clock and threads.

    Thread safety: one thread at a time.
    """

    def __init__(
        self, sources: Sequence[str], *, client_keys: Mapping[str, str] | None = None, machine: Machine | None = None
    ) -> None:
        self._sources = tuple(sources)
        self._client_keys = client_keys
        self._machine = machine or Machine()
        self._view: MetadataView | None = None
        self._fingerprint: object = None
        self._due = 0.0

    def read(self) -> MetadataView:
        """What the source says now; the same object if it has not changed. Raises: as ``open_metadata``.

        Cost: of files a look at their sizes and times, and all of them where any has changed. Of a running Kafka its
        whole metadata topic, at most a tenth of the time: in between the last view is given.
        """
        clock = self._machine.clock
        if self._is_cluster():
            if self._view is not None and clock.monotonic_seconds() < self._due:
                return self._view
            began = clock.monotonic_seconds()
            self._view = self._open()
            ended = clock.monotonic_seconds()
            self._due = ended + (ended - began) * _PAUSES
            return self._view
        found = [self._look(source) for source in self._sources]
        if self._view is None or found != self._fingerprint:
            self._view, self._fingerprint = self._open(), found
        return self._view

    def _open(self) -> MetadataView:
        return open_metadata(self._sources, machine=self._machine, client_keys=self._client_keys)

    def _is_cluster(self) -> bool:
        return any(is_bootstrap(each) and self._machine.files.find(each) is None for each in self._sources)

    def _look(self, source: str) -> object:
        """What changes with a source: of a file its size and time, of a folder those of the topic's files in it."""
        path = local_path(source)
        found = None if path is None else self._machine.files.find(path)
        if found is not None and not found.is_directory:
            return found.identity, found.size_bytes, found.modified_ms
        with open_tier(source, layout="log-dir", machine=self._machine) as tier:
            return sorted(
                (info.key, info.size_bytes, info.last_modified_ms)
                for info in tier.store.iter_objects(tier.scope.folder)
                if METADATA_TOPIC in info.key
            )
