"""The KIP's errors, under the KIP's names, of a RemoteStorageManager or RemoteLogMetadataManager."""

from __future__ import annotations

from typing import ClassVar

from tierlog.errors import TierlogError


class RemoteStorageException(TierlogError, OSError):
    """A failure of remote storage or of its metadata that calling again will not mend.

    Two subclasses say that the store is not to blame: InvalidRangeError and SegmentFileError.
    """


class RetriableRemoteStorageException(RemoteStorageException):
    """A transient failure: the same call may work later."""

    retriable: ClassVar[bool] = True


class RemoteResourceNotFoundException(RemoteStorageException, FileNotFoundError):
    """The object, index or metadata asked for does not exist."""


class RemoteStorageNotReadyException(RetriableRemoteStorageException):
    """The partition's metadata is not loaded yet."""


class InvalidRangeError(RemoteStorageException, ValueError):
    """The caller asked for positions that the segment does not have: the caller must change them."""


class SegmentFileError(RemoteStorageException):
    """A local file of the segment that is copied is missing, cannot be read, changed meanwhile, or is damaged: the
    broker's disk must be looked at, not the store.
    """


class InvalidTransitionError(RemoteStorageException, ValueError):
    """A segment's, or a partition removal's, state does not allow the new one: nothing was changed."""
