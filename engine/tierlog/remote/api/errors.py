"""The KIP's errors, under the KIP's names: what a RemoteStorageManager or RemoteLogMetadataManager raises."""

from __future__ import annotations

from typing import ClassVar

from tierlog.errors import TierlogError


class RemoteStorageException(TierlogError, OSError):
    """A failure of remote storage or of its metadata that calling again will not mend."""


class RetriableRemoteStorageException(RemoteStorageException):
    """A transient failure: the same call may work later."""

    retriable: ClassVar[bool] = True


class RemoteResourceNotFoundException(RemoteStorageException, FileNotFoundError):
    """The object, index or metadata asked for does not exist."""


class RemoteStorageNotReadyException(RetriableRemoteStorageException):
    """The partition's metadata is not loaded yet."""


class InvalidTransitionError(RemoteStorageException, ValueError):
    """A segment's, or a partition removal's, state does not allow the new one: nothing was changed."""
