"""The write-ahead log that a process left behind which was killed, checked before SQLite reads it.

SQLite ends its reading of the log at the first frame that does not fit, without a word: one flipped bit takes that
commit and all later ones away. A power cut leaves such an end too, but only in the last transaction, since each commit
is fsynced before the next one is written. So a commit behind which the log goes on was durable, and has to be there.

    header: magic, version, page size, checkpoint number, two salts, two sums: uint32, big-endian
    frame:  page number, size of the database (of the last frame of a transaction; else 0), the salts, two sums; a page

The sums go on from frame to frame; they are of the frame's first 8 bytes and its page, and the salts are of this use of
the file: behind its frames there may be some of an earlier one. (https://www.sqlite.org/fileformat2.html#walformat)
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from tierlog.errors import CorruptDataError
from tierlog.runtime.machine.files import Files, ReadableFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.uint32]

_log: Final = logging.getLogger(__name__)
_HEADER: Final = struct.Struct(">8I")
_FRAME_BYTES: Final = 24
_VERSION: Final = 3_007_000
#: The magic, and the order of the bytes in the words that are summed up.
_ORDERS: Final = {0x377F0682: "<u4", 0x377F0683: ">u4"}
_PAGE_SIZES: Final = frozenset(1 << power for power in range(9, 17))
_WORD_BYTES: Final = 4
#: Fields of a frame that its sums are of, beside its page.
_SUMMED_FIELDS: Final = 2
_BLOCK_BYTES: Final = 1 << 20


def check_write_ahead_log(files: Files, path: str) -> None:
    """Check that SQLite will find all commits of a log that were durable for certain.

    Frames behind the last whole transaction are a warning: a power cut may have interrupted a commit, or the last one
    is damaged.

    Blocks while the file is read, in pieces; takes some 100 bytes of memory a frame beside them.

    Raises:
        CorruptDataError: commits that were durable would be left out. Else what files raise.
    """
    with files.open_read(path) as file:
        header = bytearray(_HEADER.size)
        file.read_into(header, position=0)
        if file.size_bytes < _HEADER.size + _FRAME_BYTES + min(_PAGE_SIZES):
            return  # no frame: the header is fsynced before the first one is written
        magic, version, page_size, _, *salts, first, second = _HEADER.unpack(header)
        order = _ORDERS.get(magic)
        if order is None or version != _VERSION or page_size not in _PAGE_SIZES:
            raise CorruptDataError("the header of the write-ahead log is damaged", where=path)
        sums = np.array([[first, second]], np.uint32)
        if (np.frombuffer(header, order, 6).astype(np.uint32) @ _weights(6) != sums).any():
            raise CorruptDataError("the header of the write-ahead log does not match its checksum", where=path)
        fields, own_sums = _read_frames(file, page_size, order)
    is_commit, stored = fields[:, 1] != 0, fields[:, 4:]
    is_ours = (fields[:, 2:4] == np.array(salts, np.uint32)).all(axis=1)
    weights = _weights(1 + _SUMMED_FIELDS + page_size // _WORD_BYTES)
    carry, size_weight = weights[1::-1], weights[2]
    computed = own_sums + np.concatenate((sums, stored))[:-1] @ carry
    follows = (computed == stored).all(axis=1)
    fits = is_ours & follows
    if fits.all():
        return
    cut = int(fits.argmin())  # where SQLite stops; all before fits, so that the sums computed for this one are right
    if not is_commit[cut]:  # it was, if with some size its sums are right: a flipped bit makes 0 of a power of two
        sizes = fields[is_commit, 1:2].astype(">u4").view(order).astype(np.uint32)
        is_commit[cut] = (computed[cut] + sizes * size_weight == stored[cut]).all(axis=1).any()
    goes_on = fits[cut + 1 :].copy()
    if goes_on.size and is_ours[cut + 1] and (own_sums[cut + 1] + computed[cut] @ carry == stored[cut + 1]).all():
        goes_on[0] = True  # the sums of the frame were damaged, not its content
    if (is_commit[cut:-1] & goes_on).any():
        position = _HEADER.size + cut * (_FRAME_BYTES + page_size)
        text = "the write-ahead log is damaged: commits behind this frame would be lost"
        raise CorruptDataError(text, where=path, position=position)
    if follows[cut] or is_ours[cut:].any():
        _log.warning("%s: what is behind the last whole commit is left out: it was interrupted, or is damaged", path)


def _read_frames(file: ReadableFile, page_size: int, order: str) -> tuple[Words, Words]:
    """Read the six fields of each frame, uint32[n, 6], and its addition to the sums of the frame before,
    uint32[n, 2].
    """
    size = _FRAME_BYTES + page_size
    count = (file.size_bytes - _HEADER.size) // size
    fields, own_sums = np.empty((count, 6), np.uint32), np.empty((count, 2), np.uint32)
    weights = _weights(_SUMMED_FIELDS + page_size // _WORD_BYTES)
    at_once = max(_BLOCK_BYTES // size, 1)
    memory = memoryview(bytearray(at_once * size))
    for start in range(0, count, at_once):
        found = slice(start, min(start + at_once, count))
        block = memory[: (found.stop - start) * size]
        file.read_into(block, position=_HEADER.size + start * size)
        frames = np.frombuffer(block, np.uint8).reshape(-1, size)
        fields[found] = frames[:, :_FRAME_BYTES].view(">u4")
        words = frames.view(order).astype(np.uint32)
        own_sums[found] = words[:, :_SUMMED_FIELDS] @ weights[:_SUMMED_FIELDS]
        own_sums[found] += words[:, _FRAME_BYTES // _WORD_BYTES :] @ weights[_SUMMED_FIELDS:]
    return fields, own_sums


def _weights(count: int) -> Words:
    """Return the multiplicity of each of ``count`` words in the two sums (a, b), uint32[count, 2], modulo 2^32.

    SQLite takes words in pairs: ``a += first + b``, then ``b += second + a``. So a word is in ``a`` as often as the
    Fibonacci number of its distance from the end says, in ``b`` as the next one. Of sums to go on from, ``a`` counts
    as the first word does, ``b`` as one in front of it would.
    """
    numbers = [0, 1]
    while len(numbers) <= count:
        numbers.append((numbers[-1] + numbers[-2]) & 0xFFFFFFFF)
    fibonacci = np.array(numbers, np.uint32)
    return np.stack((fibonacci[:count], fibonacci[1 : count + 1]), axis=1)[::-1]
