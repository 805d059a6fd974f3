"""Checks of a Python caller's arguments: a TypeError names the argument and its types.

Without them a string in place of a list is read letter by letter, ``"no"`` is true, and the error appears far below in
other words. No message shows a value: an argument may hold a secret.
"""

from __future__ import annotations

import datetime
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

Kind = TypeVar("Kind")

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


def wrong_type(name: str, value: object, wanted: str) -> TypeError:
    """Make the TypeError, to be raised. ``wanted`` is named with its article: "a str"."""
    return TypeError(f"{name} is {wanted}, not {type(value).__name__}")


def require_type(name: str, value: object, kind: type[Kind] | tuple[type[Kind], ...], wanted: str) -> Kind:
    """Return the value. Raises TypeError if it is not of that type."""
    if not isinstance(value, kind):
        raise wrong_type(name, value, wanted)
    return value


def require_text(name: str, value: object) -> str:
    """Return the value as a str."""
    return require_type(name, value, str, "a str")


def require_flag(name: str, value: object) -> bool:
    """Return the value as True or False. Other values are refused, since "no" would count as true."""
    return require_type(name, value, bool, "a bool")


def require_int(name: str, value: object) -> int:
    """Return the value as an int. Types that convert exactly (numpy's) are accepted too; True and False are not."""
    if type(value) is int:
        return value
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise wrong_type(name, value, "an int")


def require_int32(name: str, value: object) -> int:
    """Return the value as an int of 32 bits, as Kafka's epochs and sequences are. Raises ValueError: out of range."""
    number = require_int(name, value)
    if not INT32_MIN <= number <= INT32_MAX:
        raise ValueError(f"{name} does not fit into 32 bits")
    return number


def require_number(name: str, value: object) -> float:
    """Return the value as an int or a float. True and False are neither."""
    if isinstance(value, bool):
        raise wrong_type(name, value, "a number")
    return require_type(name, value, (int, float), "a number")


def require_int64(name: str, value: object, *, least: int = INT64_MIN) -> int:
    """Return the value as an int of 64 bits, as Kafka's offsets, positions and timestamps are. Raises ValueError: out
    of range.
    """
    number = require_int(name, value)
    if number > INT64_MAX or number < INT64_MIN:
        raise ValueError(f"{name} does not fit into 64 bits")
    if number < least:
        raise ValueError(f"{name} is at least {least}, not {number}")
    return number


def require_function(name: str, value: object) -> None:
    """Return the value as something that can be called."""
    if not callable(value):
        raise wrong_type(name, value, "a function")


def require_path(name: str, value: object) -> str:
    """Return the value as a path or a URL."""
    if not isinstance(value, str | os.PathLike):
        raise wrong_type(name, value, "a str or a path")
    return require_text(name, os.fspath(value))


def require_buffer(name: str, value: object) -> None:
    """Return the value as bytes, or as an object with the buffer protocol."""
    try:
        memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        raise wrong_type(name, value, "bytes or another buffer") from None


def require_writable(name: str, value: object) -> memoryview:
    """Return the bytes of a buffer that can be written to."""
    wanted = "a buffer that can be written to"
    try:
        view = memoryview(value).cast("B")  # type: ignore[arg-type]
    except (TypeError, BufferError):
        raise wrong_type(name, value, wanted) from None
    if view.readonly:
        raise wrong_type(name, value, wanted)
    return view


def require_names(name: str, value: object) -> tuple[str, ...]:
    """Return the value as several strs. One str alone is refused: it would be read as its letters."""
    wanted = "a sequence of str"
    if isinstance(value, str):
        raise TypeError(f"{name} is {wanted}, not str: write [{value[:40]!r}]")
    return tuple(require_text(f"each of {name}", each) for each in _several(name, value, wanted))


def require_ints(name: str, value: object) -> tuple[int, ...]:
    """Return the value as several ints."""
    return tuple(require_int(f"each of {name}", each) for each in _several(name, value, "a sequence of int"))


def require_int_map(name: str, value: object) -> dict[int, int]:
    """Return the value as a mapping of ints to ints, such as offsets by partition."""
    given = require_type(name, value, Mapping, "a mapping of int to int")
    return {
        require_int(f"each key of {name}", key): require_int(f"{name}[{key!r}]", number)
        for key, number in given.items()
    }


def require_texts(name: str, value: object) -> None:
    """Return the value as a mapping of str to str, such as keys of a configuration. No value is shown."""
    for key, text in require_type(name, value, Mapping, "a mapping of str to str").items():
        require_text(f"each key of {name}", key)
        require_text(f"{name}[{key!r}]", text)


def _several(name: str, value: object, wanted: str) -> Iterable[object]:
    if isinstance(value, str | bytes | Mapping | datetime.date) or not isinstance(value, Iterable):
        raise wrong_type(name, value, wanted)
    return value
