"""Keys of configurations as rows: name, type, default, limits and meaning, and how a value is read from text.

A configuration is a dataclass, and each of its keys a field of it::

    segment_ms: int = key("When the active segment is closed, by age.", default=7 * DAY_MS, minimum=1)

One row reads and checks the value, in text and in code, and makes the reference pages. Its name is the field's with "."
for "_", its type the field's. Nothing heavy is imported here: a log's configuration is one such table, and the storage
manager's, whose rows pydantic is given as its validators, is another.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from tierlog.arguments import INT32_MAX, INT64_MAX
from tierlog.errors import ConfigError

Value = bool | int | float | str | frozenset[str] | tuple[str, ...]
#: A number of 32 bits; an int has 64.
Int32 = int
#: A time as text: 30s, 500ms, 2m.
Duration = str

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_HTTP_URL: Final = re.compile(r"https?://[^\s/]+\S*", re.IGNORECASE)
_UNITS_MS: Final = {"minutes": 60_000, "hours": 3_600_000}
#: Of a field's annotation: the type of its values, and that type in words, for errors. A password is text.
_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "bool": (bool, "True or False"),
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "str": (str, "a str"),
    "Duration": (str, "a duration such as 30s or 500ms"),
    "Password": (str, "a str"),
    "frozenset[str]": (frozenset, 'a frozenset of str, as frozenset({"delete"}),'),
    "tuple[str, ...]": (tuple, "a tuple of str"),
}


class WrongValueError(ConfigError):
    """A value is malformed or out of range.

    Attributes:
        what: The key, and its value if that may be shown.
        wanted: The expected values.
        kafkas: The same in the words of Kafka's validators.
    """

    def __init__(self, what: str, wanted: str, kafkas: str) -> None:
        super().__init__(f"{what}: {wanted}")
        self.what = what
        self.wanted = wanted
        self.kafkas = kafkas

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.wanted, self.kafkas)


@dataclass(frozen=True, slots=True)
class Key:
    """One row.

    Args:
        name: As a file has it.
        kind: The annotation of its values: a name of _KINDS.
        default: None: the key has no value unless it is given.
        meaning: For the reference page.
        minimum, maximum: Of a number, inclusive; it is a multiple of ``multiple_of`` too.
        minimum_in_code: Of a number that is not read from text; None: ``minimum``.
        also: A number below the minimum that is allowed too.
        choices: The only values (of several: of each).
        pattern: What each element of a tuple is like: a pattern, and that in words. ("*",) is always allowed.
        not_empty: Text of at least one character. ``url``: http or https.
        other_names: A broker's names for a topic's key: where that is not given, the first of them that is counts.
        negative_means: The value that a negative one under one of them means; None: itself.
        own: Kafka, or the plugin, does not know the key.
        live: Whether the key can be changed at run time.
    """

    name: str
    kind: str
    default: Value | None
    meaning: str
    minimum: int = -(2**63)
    maximum: int = INT64_MAX
    minimum_in_code: int | None = None
    multiple_of: int | None = None
    also: int | None = None
    choices: tuple[str, ...] = ()
    pattern: tuple[str, str] | None = None
    not_empty: bool = False
    url: bool = False
    other_names: tuple[str, ...] = ()
    negative_means: int | None = None
    own: bool = False
    live: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Each name under which the key can be given; the first that is counts."""
        return (self.name, *self.other_names)

    @property
    def is_secret(self) -> bool:
        """Whether a value must never be shown."""
        return self.kind == "Password"

    def read(self, text: str, name: str = "") -> Value:
        """Return the value of a text, in range.

        Args:
            text: As a configuration has it; white space around it does not count.
            name: The name under which it was given; "": the key's own. Minutes and hours under another one become ms.

        Raises:
            WrongValueError: malformed, or out of range.
        """
        name = name or self.name
        value = self._parsed(text.strip(), name)
        if type(value) is not int or name == self.name:
            return self.check(value, name=name)
        if self.negative_means is not None and value < 0:
            return self.negative_means
        unit_ms = _UNITS_MS.get(name.rpartition(".")[2], 1)
        least = -(-self.minimum // unit_ms)
        if unit_ms > 1 and not least <= value <= min(INT32_MAX, self.maximum // unit_ms):
            raise self._wrong(name, value, f"at least {least} expected, and at most 2^31-1")
        return self.check(value * unit_ms, name=name)

    def _parsed(self, text: str, name: str) -> Value:
        kind = _KINDS[self.kind][0]
        if kind is bool:
            if text.lower() not in ("true", "false"):
                raise self._wrong(name, text, "true or false expected", "Expected value to be either true or false")
            return text.lower() == "true"
        if kind is int or kind is float:
            if (_WHOLE_NUMBER if kind is int else _DECIMAL_NUMBER).fullmatch(text) is None:
                raise self._wrong(name, text, f"{_KINDS[self.kind][1]} expected", "Not a number of type INT")
            return int(text) if kind is int else float(text)
        if kind is str:
            return text
        items = [item.strip() for item in text.split(",")] if text else []
        if kind is tuple:
            return tuple(item for item in items if item or self.pattern)
        if "" in items:
            raise self._wrong(name, text, "an element is empty")
        return frozenset(items)

    def check(self, value: Value, *, name: str = "", in_code: bool = False) -> Value:
        """Return the value itself.

        Raises:
            WrongValueError: of another type, or out of range.
        """
        name = name or self.name
        kind, wanted = _KINDS[self.kind]
        if type(value) is int and kind is float:
            value = float(value)
        items = value if isinstance(value, frozenset | tuple) else (value,) if isinstance(value, str) else ()
        if type(value) is not kind or not all(type(item) is str for item in items):
            raise self._wrong(name, value, f"{wanted} expected")
        if isinstance(value, int | float):
            self._check_number(value, name, self.minimum_in_code if in_code else None)
        for item in items:
            if self.choices and item not in self.choices:
                said = ", ".join(self.choices)
                raise self._wrong(name, item, f"one of {said} expected", f"String must be one of: {said}")
            if self.pattern and value != ("*",) and re.fullmatch(self.pattern[0], item) is None:
                raise self._wrong(name, item, self.pattern[1])
            if self.not_empty and not item:
                raise self._wrong(name, item, "String must be non-empty")
            if self.url and _HTTP_URL.fullmatch(item) is None:
                raise self._wrong(name, item, "Must be a valid URL of http or https")
        return value

    def _check_number(self, value: float, name: str, minimum: int | None) -> None:
        least = self.minimum if minimum is None else minimum
        if isinstance(value, bool) or value == self.also:
            return
        if not least <= value or math.isnan(value):
            also = "" if self.also is None else f", or {self.also}"
            raise self._wrong(name, value, f"at least {least} expected{also}", f"Value must be at least {least}")
        if value > self.maximum:
            said = f"Value must be no more than {self.maximum}"
            raise self._wrong(name, value, f"at most {self.maximum} expected", said)
        if self.multiple_of is not None and value % self.multiple_of:
            raise self._wrong(name, value, f"Value must be a multiple of {self.multiple_of}")

    def _wrong(self, name: str, value: object, wanted: str, kafkas: str = "") -> WrongValueError:
        return WrongValueError(name if self.is_secret else f"{name} {value!r:.80}", wanted, kafkas or wanted)

    def shown(self, value: Value) -> str:
        """Return a value as Kafka writes it."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, frozenset | tuple):
            return ",".join(sorted(value) if isinstance(value, frozenset) else value)
        return _shown_double(value) if isinstance(value, float) else str(value)


def _shown_double(value: float) -> str:
    """A number as Java writes it: with an exponent from 10^7 on, and below 10^-3."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{int(exponent) + len(text) - 1}"


def key(meaning: str, *, default: Value | None = None, name: str = "", under: str = "", **facts: Any) -> Any:
    """Return a field that is a row: see Key.

    Args:
        meaning: As of a Key.
        default: As of a Key.
        facts: As of a Key.
        name: Where it is not that of the field.
        under: What stands before the field's name in the key's.
    """
    return dataclasses.field(default=default, metadata={"key": (name, under, default, meaning, facts)})


_ROWS: Final[dict[object, Mapping[str, Key]]] = {}


def rows(table: type[Any]) -> Mapping[str, Key]:
    """Return the rows of a configuration, by field. Fields that are no keys are left out."""
    found = _ROWS.get(table)
    if found is None:
        found = _ROWS[table] = dict(_iter_rows(table))
    return found


def _iter_rows(table: type[Any]) -> Iterator[tuple[str, Key]]:
    for field in dataclasses.fields(table):
        if "key" in field.metadata:
            name, under, default, meaning, facts = field.metadata["key"]
            kind = str(field.type).removesuffix(" | None")
            if kind == "Int32":
                kind, facts = "int", {"maximum": INT32_MAX} | facts
            yield field.name, Key(name or under + field.name.replace("_", "."), kind, default, meaning, **facts)


def read_values(table: type[Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a configuration that are given, by any of their names; the names that do not count are
    checked all the same.

    Raises:
        WrongValueError: a value is malformed or out of range.
    """
    values: dict[str, Any] = {}
    for field, row in rows(table).items():
        found = [row.read(given[name], name) for name in row.names if name in given]
        if found:
            values[field] = found[0]
    return values


def check_values(configuration: Any) -> None:
    """Check the fields of a configuration that was made in code. Raises WrongValueError."""
    for field, row in rows(type(configuration)).items():
        value = getattr(configuration, field)
        if value is not None or row.default is not None:
            row.check(value, in_code=True)


def names_of(*tables: type[Any]) -> frozenset[str]:
    """Return every name under which a key of these configurations can be given."""
    return frozenset(name for table in tables for row in rows(table).values() for name in row.names)


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the known name that is the most like another, for the error about an unknown one."""
    return difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]
