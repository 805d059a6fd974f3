"""The errors of every room: coarse kinds, each telling the caller what to do.

Each also inherits the builtin that a Python user would catch. A new class exists only where a caller would act
differently; everything else is in the message, which names topic, partition, offset, object and byte position.
The KIP's own errors (``RemoteStorageException`` …) stand in :mod:`tierlog.remote.api`, under their own names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self


class TierlogError(Exception):
    """Base of all errors that this package raises on purpose."""

    retriable: ClassVar[bool] = False


class ConfigError(TierlogError, ValueError):
    """An option, key or argument is unknown, malformed or contradicts another one: the caller must change it."""


class CorruptDataError(TierlogError, ValueError):
    """The bytes are wrong; reading them again cannot help.

    Attributes:
        fault: The name of the core's status, as ``BAD_CRC`` (``tierlog/status.h`` lists them).
        position: Byte position of the batch or entry in its file; -1 if it does not apply.
        base_offset: Kafka offset of the batch or record; -1 if unknown.
        record: Index of the record in its batch; -1 if it does not apply.
        expected: The value that the format demands or the bytes declare; 0 if it does not apply.
        found: The value found; 0 if it does not apply.
        where: The object or file, as far as it is known; "" if not.
    """

    def __init__(
        self,
        text: str,
        *,
        fault: str = "CORRUPT",
        position: int = -1,
        base_offset: int = -1,
        record: int = -1,
        expected: int = 0,
        found: int = 0,
        where: str = "",
    ) -> None:
        super().__init__(text)
        self.text = text
        self.fault = fault
        self.position = position
        self.base_offset = base_offset
        self.record = record
        self.expected = expected
        self.found = found
        self.where = where

    def located(self, where: str) -> Self:
        """Return this error with the name of the object or file in front (unchanged if it has one already)."""
        if not self.where:
            self.where = where
        return self

    def __str__(self) -> str:
        place = self.where
        if self.position >= 0:
            place += f" @ {self.position}" if place else f"@ {self.position}"
        if self.base_offset >= 0:
            place += f" (offset {self.base_offset})"
        return f"{place.strip()}: {self.text}" if place else self.text

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.text, {k: v for k, v in self.__dict__.items() if k != "text"}))


class CorruptRecordError(CorruptDataError):
    """A record batch, or a record in it, is malformed."""


class CorruptIndexError(CorruptDataError):
    """An index, a snapshot or a checkpoint is malformed: it can be rebuilt from its log."""


class CorruptObjectError(CorruptDataError):
    """An object of the tier (manifest, chunk, encrypted unit) is malformed or not authentic."""


class SizeLimitError(CorruptDataError):
    """Content is larger than the limit that the caller set (a decompression bomb, or a limit that is too low)."""


class EncryptionKeyError(TierlogError, LookupError):
    """A segment is wrapped with a key that the configured ring does not have, or that does not open it."""


class StoreError(TierlogError, OSError):
    """The object store (or a disk) failed in a way that trying again will not mend.

    Attributes:
        refused: Whether the store answered that the call had no effect, and nothing has to be undone.
    """

    refused: bool = False


class ObjectNotFoundError(StoreError, FileNotFoundError):
    """The object or file is not there."""


class ArchivedObjectError(StoreError):
    """The object lies in an archive (Glacier and the like): it must be restored before it can be read."""


class ObjectConflictError(StoreError, FileExistsError):
    """A conditional write found another object than the caller expected: read it again and decide anew."""


class StorePermissionError(StoreError, PermissionError):
    """The store knows us and refuses, or does not know us: credentials or rights must change."""


class StoreUnavailableError(StoreError):
    """The store timed out, throttled or reset after all retries: the same call may work later."""

    retriable: ClassVar[bool] = True


class StoreNotReachedError(StoreUnavailableError):
    """No try of the call got a connection: the store has seen nothing of it, so there is nothing to undo."""


class DataLossError(TierlogError, LookupError):
    """Offsets or objects that should be there are gone (deleted meanwhile, or never complete)."""


class PoolClosedError(TierlogError, RuntimeError):
    """A call was submitted to threads that were closed, or had not begun when they were."""

    def __init__(self) -> None:
        super().__init__("its threads were closed")


class ForkedProcessError(TierlogError, RuntimeError):
    """An object of the parent process is used in a fork of it, which lacks its threads: open it anew."""


class NoThreadError(TierlogError, RuntimeError):
    """The system gives this process no more threads, and none that it has can do the work: it may work later."""

    retriable: ClassVar[bool] = True


class UnknownTopicError(TierlogError, LookupError):
    """The topic (or partition) asked for is not in this tier."""


def _rebuild(kind: type[CorruptDataError], text: str, state: dict[str, object]) -> CorruptDataError:
    error = kind(text)
    error.__dict__.update(state)
    return error


def first_of(names: Sequence[str], shown: int, separator: str = ", ") -> str:
    """Return the text for many names in a message: the first ones, and the number of the others."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return separator.join(names[:shown]) + more
