"""The last listing of a bucket in a file, so that a server that restarts answers before it has listed anything.

A text file of JSON lines: a header (the format's version, and the listing's source), a line for each folder, and a
trailer with the number of folders and a checksum of all bytes before it. It is replaced as a whole. A file that is
damaged, of another version, or of another bucket is passed over: then the bucket is listed, as without a file.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import xxhash

from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.scan.following.tier_listing import (
    NUMBERS,
    SEPARATOR,
    ListedFolder,
    ListedPartition,
    TierListing,
    group_by_partition,
)

_log = logging.getLogger(__name__)

_FORMAT: Final = "tierlog-bucket-listing"
_VERSION: Final = 1
#: A file that is larger is passed over: some ten million objects.
_FILE_BYTES_MAX: Final = 1 << 30
#: Pause between two saves: at least this, and a multiple of a save's duration.
_SAVE_SECONDS_MIN: Final = 30.0
_SAVE_PAUSES: Final = 100.0
#: Bytes that are written at once.
_WRITE_BYTES: Final = 1 << 20


class SavedListing:
    """A listing's file.

    Args:
        path: Of the file; its directory is made.
        tier: Whose listing it is.
        machine: Its files.

    Thread safety: one thread at a time.
    """

    def __init__(self, path: str, tier: Tier, machine: Machine) -> None:
        self._path = path
        self._files = machine.files
        self._source = _source_of(tier)

    def load(self) -> TierListing | None:
        """Return the listing that was saved last; None if there is none, or none of this tier."""
        try:
            data = self._files.read_whole(self._path, limit_bytes=_FILE_BYTES_MAX)
        except ObjectNotFoundError:
            return None
        except StoreError as error:
            _log.warning("the saved listing is not used: %s", error)
            return None
        try:
            return _parse(data, self._source)
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            _log.warning("%s: the saved listing is not used: %s", self._path, error)
            return None

    def save(self, listing: TierListing) -> None:
        """Replace the saved listing. Raises StoreError and its kinds: then the old one is still there."""
        self._files.make_directories(self._path.rpartition("/")[0] or ".", private=True)
        digest = xxhash.xxh3_128()
        with self._files.open_write(self._path) as file:
            pieces = bytearray()
            for line in _iter_lines(listing, self._source):
                pieces += line
                if len(pieces) >= _WRITE_BYTES:
                    _write(file.write, digest.update, pieces)
            _write(file.write, digest.update, pieces)
            trailer = {"folders": len(listing.folders), "checksum": digest.hexdigest()}
            file.write(json.dumps(trailer).encode() + b"\n")
            file.commit()


class ListingSaver:
    """The saving of listings as they come, so seldom that it costs next to nothing.

    Args:
        saved: The file.
        machine: Its clock.

    Thread safety: one thread at a time.
    """

    def __init__(self, saved: SavedListing, machine: Machine) -> None:
        self._saved = saved
        self._clock = machine.clock
        self._last: TierListing | None = None
        self._newest: TierListing | None = None
        self._due = 0.0
        self._has_failed = False

    def load(self) -> TierListing | None:
        """Return the listing that was saved last, or None; it need not be saved again."""
        self._last = self._saved.load()
        return self._last

    def note(self, listing: TierListing) -> None:
        """Save a listing that is not as the one before, now or with the next flush."""
        if self._last is not None and self._last.folders == listing.folders:
            return
        self._newest = self._last = listing
        if self._clock.monotonic_seconds() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Save an unsaved listing now. An error is logged: the server does without."""
        listing, self._newest = self._newest, None
        if listing is None:
            return
        began = self._clock.monotonic_seconds()
        try:
            self._saved.save(listing)
        except StoreError as error:
            if not self._has_failed:
                _log.warning("the listing cannot be saved, and the next start begins without: %s", error)
            self._has_failed = True
        else:
            self._has_failed = False
        now = self._clock.monotonic_seconds()
        self._due = now + max(_SAVE_SECONDS_MIN, (now - began) * _SAVE_PAUSES)


def _write(write: Callable[[bytes], object], update: Callable[[bytes], object], pieces: bytearray) -> None:
    data = bytes(pieces)
    pieces.clear()
    write(data)
    update(data)


def _source_of(tier: Tier) -> str:
    """Return the identity of a listing's tier, without secrets: a key prefix may be one."""
    scope = tier.scope
    text = repr((tier.store.describe(), tier.layout, scope.folder, scope.key_prefix))
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogateescape"))


def _iter_lines(listing: TierListing, source: str) -> Iterator[bytes]:
    header = {"format": _FORMAT, "version": _VERSION, "source": source, "foreignObjects": listing.foreign_objects}
    yield json.dumps(header).encode() + b"\n"
    for described in listing.folders.values():
        folder = described if isinstance(described, ListedFolder) else described.folders[0]
        fields: dict[str, Any] = {
            "path": folder.path,
            "names": folder.names.split(SEPARATOR) if folder.count else [],
            "numbers": base64.b64encode(folder.numbers).decode(),
        }
        if isinstance(described, ListedPartition):
            partition = described.topic_id_partition
            fields |= {
                "topicId": str(partition.topic_id),
                "topic": partition.topic,
                "partition": partition.partition,
                "segments": described.segments,
            }
        yield json.dumps(fields).encode() + b"\n"


def _parse(data: bytes, source: str) -> TierListing:
    """Parse a listing. Raises ValueError, TypeError and JSON's errors: it is no listing of this source."""
    if not data.endswith(b"\n"):
        raise ValueError("it ends in the middle of a line")
    cut = data.rfind(b"\n", 0, max(len(data) - 1, 0)) + 1
    trailer = _object(data[cut:])
    if trailer.get("checksum") != xxhash.xxh3_128_hexdigest(memoryview(data)[:cut]):
        raise ValueError("its checksum is not that of its content")
    lines = iter(data[:cut].splitlines())
    header = _object(next(lines, b""))
    if (header.get("format"), header.get("version")) != (_FORMAT, _VERSION):
        raise ValueError(f"a listing of version {_VERSION} was expected")
    if header.get("source") != source:
        raise ValueError("it is of another bucket, layout or prefix")
    folders: dict[str, ListedPartition | ListedFolder] = {}
    for line in lines:
        described = _described(_object(line))
        path = described.path if isinstance(described, ListedFolder) else described.folders[0].path
        folders[path] = described
    if trailer.get("folders") != len(folders):
        raise ValueError("folders are missing")
    return TierListing(group_by_partition(folders.values()), folders, _count(header, "foreignObjects"))


def _described(fields: dict[str, Any]) -> ListedPartition | ListedFolder:
    names, path = fields.get("names"), fields.get("path")
    numbers = base64.b64decode(str(fields.get("numbers")), validate=True)
    if not isinstance(path, str) or not isinstance(names, list) or len(numbers) != len(names) * 8 * NUMBERS:
        raise ValueError("a folder is malformed")
    folder = ListedFolder(path, SEPARATOR.join(names), numbers)
    if "topic" not in fields:
        return folder
    partition = TopicIdPartition(Uuid.from_text(fields["topicId"]), fields["topic"], fields["partition"])
    return ListedPartition(partition, (folder,), folder.newest_ms, _count(fields, "segments"))


def _object(line: bytes) -> dict[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise TypeError("a line is no object")
    return found


def _count(fields: dict[str, Any], name: str) -> int:
    found = fields.get(name)
    if type(found) is not int or found < 0:
        raise ValueError(f"{name} is no number")
    return found
