"""A listing on its way to the jar and back. The jar does not look into it; here it is a pickle."""

from __future__ import annotations

import enum
import io
import pickle
from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import Buffer

from pyspark_tierlog.listing import Listing
from pyspark_tierlog.plan.frames import FrameWriter, PlanProtocolError

#: Of one frame.
_PIECE_BYTES: Final = 16 << 20
_MODULES: Final = ("tierlog.", "pyspark_tierlog.listing")


def write_listing(out: FrameWriter, listing: Listing) -> None:
    """Write a listing as frames ``L``, at least one."""
    pieces = _Pieces(out)
    _Pickler(pieces, protocol=5).dump(listing)
    pieces.end()


def read_listing(blobs: Sequence[bytes]) -> Listing:
    """Read a listing from its frames. Raises PlanProtocolError: the frames hold none."""
    try:
        found = _Unpickler(_Joined(blobs)).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
        raise PlanProtocolError(f"the listing that came back is damaged: {type(error).__name__}") from error
    if not isinstance(found, Listing):
        raise PlanProtocolError("the listing that came back is none")
    return found


class _Pieces(io.RawIOBase):
    """A stream whose bytes are cut into frames."""

    def __init__(self, out: FrameWriter) -> None:
        self._out = out
        self._waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        view = memoryview(data)
        self._waiting += view
        while len(self._waiting) >= _PIECE_BYTES:
            self._out.write("L", self._waiting[:_PIECE_BYTES])
            del self._waiting[:_PIECE_BYTES]
        return view.nbytes

    def end(self) -> None:
        self._out.write("L", self._waiting)


class _Joined(io.RawIOBase):
    """Pieces as one stream, without a second copy of all of them."""

    def __init__(self, blobs: Sequence[bytes]) -> None:
        self._blobs = blobs
        self._blob = self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        out = memoryview(buffer).cast("B")
        while self._blob < len(self._blobs):
            more = self._blobs[self._blob][self._at : self._at + len(out)]
            if more:
                out[: len(more)] = more
                self._at += len(more)
                return len(more)
            self._blob, self._at = self._blob + 1, 0
        return 0


class _Pickler(pickle.Pickler):
    """A pickler that pickles enumerations by value: Python 3.11.0 to 3.11.3 would use ``getattr``, which no unpickler
    may have.
    """

    def reducer_override(self, value: object) -> Any:
        return (type(value), (value.value,)) if isinstance(value, enum.Enum) else NotImplemented


class _Unpickler(pickle.Unpickler):
    """An unpickler that creates only our own values, since the bytes may have been changed on their way."""

    def __init__(self, stream: io.RawIOBase) -> None:
        super().__init__(io.BufferedReader(stream))

    def find_class(self, module: str, name: str) -> object:
        if not module.startswith(_MODULES) or "." in name:
            raise pickle.UnpicklingError(f"{module}.{name} does not belong to a listing")
        return super().find_class(module, name)
