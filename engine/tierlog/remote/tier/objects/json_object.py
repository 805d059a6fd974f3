"""JSON from a bucket, which is hostile until shown otherwise: typed members, bounded numbers, no recursion errors."""

from __future__ import annotations

import json
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import CorruptObjectError, SizeLimitError

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
_DECODER: Final = json.JSONDecoder()
_MISSING: Final = object()


class JsonObject:
    """One JSON object of a document.

    Args:
        members: As parsed.
        path: Where it stands in the document, for messages: "chunkIndex.".
        where: The document's key, for messages.
    """

    def __init__(self, members: dict[str, object], *, path: str, where: str) -> None:
        self._members = members
        self._path = path
        self._where = where

    def corrupt(self, name: str, text: str, fault: str = "BAD_ENTRY", *, found: int = 0) -> CorruptObjectError:
        """Make the fault of one member, ready to raise."""
        return CorruptObjectError(f"{self._path}{name}: {text}", fault=fault, found=found, where=self._where)

    def has(self, name: str) -> bool:
        """Whether a member is present and not null."""
        return self._members.get(name) is not None

    def _required(self, name: str, kind: type, described: str) -> object:
        value = self._members.get(name, _MISSING)
        if value is _MISSING:
            raise self.corrupt(name, "missing")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.corrupt(name, f"{described} expected, found {_shown(value)}")
        return value

    def integer(self, name: str, *, minimum: int = 0, maximum: int = INT32_MAX) -> int:
        """Return a member that is a whole number in a range; floats are none, whatever their value."""
        value = self._members.get(name)
        if type(value) is not int:
            value = self._required(name, int, "a whole number")
            assert isinstance(value, int)
        if not minimum <= value <= maximum:
            raise self.corrupt(name, f"{_shown(value)} is not within {minimum} … {maximum}", "BAD_SIZE")
        return value

    def text(self, name: str) -> str:
        value = self._members.get(name)
        if type(value) is not str:
            value = self._required(name, str, "a string")
            assert isinstance(value, str)
        return value

    def boolean(self, name: str) -> bool:
        value = self._required(name, bool, "true or false")
        assert isinstance(value, bool)
        return value

    def child(self, name: str) -> JsonObject:
        value = self._members.get(name)
        if type(value) is not dict:
            value = self._required(name, dict, "an object")
            assert isinstance(value, dict)
        return JsonObject(value, path=f"{self._path}{name}.", where=self._where)

    def find_child(self, name: str) -> JsonObject | None:
        """Find a member that is an object; None if it is missing or null."""
        return self.child(name) if self.has(name) else None

    def require_absent(self, *names: str) -> None:
        """Refuse an optional member whose name is damaged: its value would silently not count.

        Raises:
            CorruptObjectError: one of the names is missing, and a member is there that differs from it in one letter.
        """
        for name in names:
            if name in self._members:
                continue
            for other in self._members:
                if len(other) == len(name) and sum(a != b for a, b in zip(other, name, strict=True)) == 1:
                    raise self.corrupt(other[:60], f"unknown, and {name} is missing: a damaged name")

    def items(self) -> list[tuple[str, object]]:
        return list(self._members.items())

    def get(self, name: str) -> object:
        """Return a member as it was parsed; None if it is missing."""
        return self._members.get(name)


def parse_json_object(data: Buffer, *, where: str, limit_bytes: int) -> JsonObject:
    """Parse a document that is one object; white space around it and bytes behind it are accepted, as the plugin does.

    Raises:
        CorruptObjectError: not UTF-8, not JSON, no object, nested too deep, or a number too long to be one.
        SizeLimitError: larger than ``limit_bytes``.
    """
    view = memoryview(data).cast("B")
    if len(view) > limit_bytes:
        text = f"{len(view)} bytes, more than the {limit_bytes} that such an object can need"
        raise SizeLimitError(text, fault="OVER_LIMIT", expected=limit_bytes, found=len(view), where=where)
    try:
        value, _ = _DECODER.raw_decode(str(view, "utf-8").lstrip(" \t\r\n"))
    except UnicodeDecodeError as cause:
        raise CorruptObjectError("not UTF-8", fault="BAD_ENTRY", position=cause.start, where=where) from cause
    except json.JSONDecodeError as cause:
        text = f"not JSON: {cause.msg}"
        raise CorruptObjectError(text, fault="BAD_ENTRY", position=cause.pos, where=where) from cause
    except RecursionError as cause:
        raise CorruptObjectError("nested too deep", fault="BAD_ENTRY", where=where) from cause
    except ValueError as cause:  # a number of thousands of digits
        raise CorruptObjectError(f"not JSON: {cause}", fault="BAD_ENTRY", where=where) from cause
    if not isinstance(value, dict):
        raise CorruptObjectError(f"a JSON object expected, found {_shown(value)}", fault="BAD_ENTRY", where=where)
    return JsonObject(value, path="", where=where)


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and abs(value) >= 1 << 128:
        return "a huge number"
    text = repr(value) if isinstance(value, str | int | float) else f"a JSON {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}…"
