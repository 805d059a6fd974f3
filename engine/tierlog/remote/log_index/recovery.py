"""What is left of a remote log index when it is opened: one row of files without a hole, whatever ended the last run.

After a clean stop all entries are there. After a crash the last file may end inside an entry and lack rows of its
offset and time index; the other files were closed. On a disk that lost bytes, the entries before the first damage are
kept: behind it a hole would look like offsets that never were in the tier. The segments themselves are still in the
tier.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Final

from tierlog.errors import CorruptIndexError
from tierlog.remote.log_index.index_file import (
    LOG_SUFFIX,
    OFFSET_SUFFIX,
    TIME_SUFFIX,
    Found,
    RemoteIndexFile,
    open_file,
    remove,
    scan_file,
    shorten,
)
from tierlog.runtime.machine.files import Files

_log = logging.getLogger(__name__)

_SUFFIXES: Final = "|".join(re.escape(suffix) for suffix in (LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX))
_NAME: Final = re.compile(rf"(?P<digits>[0-9]{{1,255}})(?P<suffix>{_SUFFIXES})")
_INT64_MAX: Final = 2**63 - 1


def recover_files(files: Files, folder: str, *, check_all: bool) -> tuple[RemoteIndexFile, ...]:
    """The valid files by number; the others are removed.

    Args:
        files: The file system.
        folder: The partition's folder, without "/" at its end. Files with other names are left alone.
        check_all: Check every entry of every file, instead of those of the last file and the ends of the others.

    Raises:
        CorruptIndexError: two files of one number. SizeLimitError: a file is too large. StoreError and its kinds.
    """
    listed = _list(files, folder)
    sound: list[RemoteIndexFile] = []
    for at, number in enumerate(listed.numbers):
        look = scan_file if check_all or at == len(listed.numbers) - 1 else open_file
        found = look(files, number.path, number.base_offset, modified_ms=number.modified_ms)
        file, fault = found.file, found.fault
        if file is not None and sound and file.first_offset <= sound[-1].last.first_offset:
            text = f"begins at {file.first_offset}, and the file before it goes on to {sound[-1].last.first_offset}"
            file, fault = None, CorruptIndexError(text, fault="BAD_ORDER", where=number.path + LOG_SUFFIX)
        if file is not None:
            sound.append(file)
        if file is None or fault is not None:
            _end_at(files, number.path, Found(file, fault), [each.path for each in listed.numbers[at + 1 :]])
            break
    for path in listed.strays:
        files.remove(path)
    return tuple(sound)


def _end_at(files: Files, path: str, found: Found, later: list[str]) -> None:
    """Remove the files behind a number, the last ones first, so that a crash in between leaves no hole."""
    if found.fault is not None:
        _log.warning(
            "%s; the remote log index ends there, and %d later files of it are removed", found.fault, len(later)
        )
    for each in reversed(later):
        remove(files, each)
    if found.file is None:
        remove(files, path)
    else:
        shorten(files, path, found.file.log_bytes)


@dataclass(frozen=True, slots=True)
class _Number:
    """The number of a remote log index as its name spells it; ``path`` is without suffix."""

    base_offset: int
    path: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class _Listed:
    """All remote log indexes by number, and index files that belong to none."""

    numbers: list[_Number]
    strays: list[str]


def _list(files: Files, folder: str) -> _Listed:
    """List a folder's index files. Numbers may have any number of digits: ours have 20, KIP-405's page shows 13."""
    numbers: dict[int, _Number] = {}
    others: list[tuple[str, str]] = []
    for info in files.iter_directory(folder):
        name = _NAME.fullmatch(info.name)
        if name is None or info.is_directory or int(name["digits"]) > _INT64_MAX:
            continue
        path = f"{folder}/{name['digits']}"
        if name["suffix"] != LOG_SUFFIX:
            others.append((path, name["suffix"]))
            continue
        number = _Number(int(name["digits"]), path, info.modified_ms)
        if numbers.setdefault(number.base_offset, number) is not number:
            text = f"{numbers[number.base_offset].path} and {path} are one number: one of them must go"
            raise CorruptIndexError(text, fault="BAD_ORDER", where=path + LOG_SUFFIX)
    paths = {number.path for number in numbers.values()}
    strays = [path + suffix for path, suffix in others if path not in paths]
    return _Listed([numbers[base] for base in sorted(numbers)], strays)
