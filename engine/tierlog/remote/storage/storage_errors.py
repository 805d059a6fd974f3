"""The errors of the storage manager, and how they become the KIP's: the one border at which they change."""

from __future__ import annotations

from typing import Final

from tierlog.errors import (
    CorruptDataError,
    EncryptionKeyError,
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
    TierlogError,
)
from tierlog.remote.api import (
    InvalidRangeError,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
    SegmentFileError,
)
from tierlog.remote.storage.storage_metrics import Operation
from tierlog.runtime.stores.wrappers.passing_store import MASK


class SegmentFileFault(StoreError):
    """A local file of the segment is missing or cannot be read.

    Attributes:
        is_passing: Whether a later try may succeed: too many open files, and the like.
    """

    def __init__(self, cause: StoreError) -> None:
        super().__init__(str(cause))
        self.is_passing = cause.retriable


class CopyDeadlineError(StoreUnavailableError):
    """A copy took longer than it may and was cancelled: a later attempt may be quicker."""


class CopyAbandonedError(StoreUnavailableError):
    """The manager was closed while the copy ran."""


#: The most telling first; see ERROR_KINDS of the metrics.
_KINDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (InvalidRangeError, "range"),
    (SegmentFileFault, "file"),
    (SegmentFileError, "file"),
    (CopyDeadlineError, "deadline"),
    (StoreUnavailableError, "unavailable"),
    (StorePermissionError, "refused"),
    (ObjectNotFoundError, "not_found"),
    (RemoteResourceNotFoundException, "not_found"),
    (RetriableRemoteStorageException, "unavailable"),
    (CorruptDataError, "corrupt"),
    (EncryptionKeyError, "key"),
    (MemoryError, "memory"),
    (StoreError, "store"),
)


class RetriableSegmentFileError(SegmentFileError, RetriableRemoteStorageException):
    """A local file of the segment could not be read for a reason that passes: too many open files, and the like."""


def error_kind(error: BaseException) -> str:
    """Return the kind of an error: one of ERROR_KINDS."""
    return next((kind for known, kind in _KINDS if isinstance(error, known)), "other")


def kip_error(error: BaseException, operation: Operation, what: object, *, masked: str = "") -> RemoteStorageException:
    """Make the KIP's error for an error of ours, with its notes; to be raised from it.

    Args:
        error: Any error; one of the KIP's is returned as it is.
        operation: The call that failed.
        what: The segment, for the message.
        masked: The key prefix that the message must not show (``key.prefix.mask``).
    """
    if isinstance(error, RemoteStorageException):
        return error
    text = str(error) if isinstance(error, TierlogError) else f"{type(error).__name__}: {error}"
    kind = RemoteStorageException
    if isinstance(error, SegmentFileFault):
        kind = RetriableSegmentFileError if error.is_passing else SegmentFileError
    elif isinstance(error, CorruptDataError) and operation == "copy":
        kind = SegmentFileError  # of its own files: an earlier copy that is damaged in the store counts as none
    elif isinstance(error, ObjectNotFoundError) and operation.startswith("fetch"):
        kind = RemoteResourceNotFoundException
    elif isinstance(error, MemoryError) or (isinstance(error, TierlogError) and error.retriable):
        kind = RetriableRemoteStorageException
    made = kind(_hidden(f"{operation.replace('_', ' ')} of {what}: {text}", masked))
    for note in getattr(error, "__notes__", ()):
        made.add_note(_hidden(note, masked))
    return made


def _hidden(text: str, masked: str) -> str:
    return text.replace(masked, MASK) if masked else text
