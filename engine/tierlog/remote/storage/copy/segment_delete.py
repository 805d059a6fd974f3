"""Deletion of segments: the description first, so that no reader begins with half a segment.

What goes is all that a copy may have left, under the place that the segment's custom metadata names and under the
configured one: the plugin goes by the configured prefix alone, and leaves what was copied under another one for ever
(docs/formats/objects.md, Where Tierlog and the plugin differ).
"""

from __future__ import annotations

from dataclasses import replace

from tierlog.errors import CorruptObjectError, StoreError
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.tier.layouts.segment_objects import Removal, plan_removal
from tierlog.runtime.stores.protocol.object_store import ObjectStore


def delete_segment(
    store: ObjectStore, config: StorageConfig, metadata: RemoteLogSegmentMetadata, *, uploads_too: bool = False
) -> None:
    """Remove what there is of a segment; what is not there is fine.

    Args:
        store: Has it.
        config: Its layout and prefix.
        metadata: With its custom metadata.
        uploads_too: Look for uploads that were begun and never ended as well: a request more.

    Raises:
        StoreError and its kinds: some of it is still there; call again. If the description could not be removed,
            nothing else was touched. CorruptObjectError: its custom metadata is damaged, and what the configured place
            has was removed.
    """
    try:
        removal = plan_removal(config, metadata)
    except CorruptObjectError:
        configured = plan_removal(config, replace(metadata, custom_metadata=None))
        _remove(store, configured, uploads_too=uploads_too)
        raise
    _remove(store, removal, uploads_too=uploads_too)


def _remove(store: ObjectStore, removal: Removal, *, uploads_too: bool) -> None:
    store.delete(removal.descriptions)
    failed: StoreError | None = None
    try:
        store.delete(removal.others)
    except StoreError as error:
        failed = error
    if uploads_too:
        for key in removal.others:
            for upload in list(store.iter_uploads(key)):
                store.abort_upload(upload)
    if failed is not None:
        raise failed
