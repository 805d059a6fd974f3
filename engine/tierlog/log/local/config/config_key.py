"""One key of a log's configuration: its name, default and limits, and how its value is read from text."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tierlog.errors import ConfigError

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

Value = bool | int | float | str | frozenset[str] | tuple[str, ...]

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
#: A type in words, for errors.
_WANTED: Final = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a str",
    frozenset: 'a frozenset of str, as frozenset({"delete"}),',
    tuple: "a tuple of str",
}
_REPLICAS: Final = re.compile(r"[0-9]+:[0-9]+")


@dataclass(frozen=True, slots=True)
class BrokerName:
    """A broker's name for a topic's key.

    Args:
        name: As a broker's file has it.
        unit_ms: By how much its value is multiplied (3,600,000 for hours).
        negative_means: What a negative value stands for; None: it is taken as it is.
    """

    name: str
    unit_ms: int = 1
    negative_means: int | None = None


@dataclass(frozen=True, slots=True)
class LogKey:
    """One key.

    Args:
        name: Kafka's; a field of a configuration value is called so, with "_" for each ".".
        default: Kafka's; its type is the value's.
        minimum, maximum: Of a number, inclusive.
        also: A number below the minimum that is allowed too.
        choices: The only values (of a set: of each element).
        broker_names: Where a broker's file has the value, the first that is given counts.
        own: Kafka does not know the key.
        minimum_in_code: Of a value that is not read from text; None: ``minimum``.
    """

    name: str
    default: Value
    meaning: str
    minimum: int = -(2**63)
    maximum: int = INT64_MAX
    also: int | None = None
    choices: tuple[str, ...] = ()
    broker_names: tuple[BrokerName, ...] = ()
    own: bool = False
    minimum_in_code: int | None = None

    @property
    def field(self) -> str:
        return self.name.replace(".", "_")

    def parse(self, text: str, name: str | None = None) -> Value:
        """The value of a text, in range.

        Args:
            text: As a configuration has it; white space around it does not count.
            name: Under which it was given, for the message; None: this key's own.

        Raises:
            ConfigError: malformed, or out of range.
        """
        name, text = name or self.name, text.strip()
        if isinstance(self.default, bool):
            if text.lower() not in ("true", "false"):
                raise wrong_value(name, text, "true or false expected")
            return text.lower() == "true"
        if isinstance(self.default, int):
            if _WHOLE_NUMBER.fullmatch(text) is None:
                raise wrong_value(name, text, "a whole number expected")
            return self.checked(int(text), name)
        if isinstance(self.default, float):
            if _DECIMAL_NUMBER.fullmatch(text) is None:
                raise wrong_value(name, text, "a number expected")
            return self.checked(float(text), name)
        if isinstance(self.default, str):
            return self.checked(text, name)
        items = [item.strip() for item in text.split(",")] if text else []
        if "" in items:
            raise wrong_value(name, text, "an element is empty")
        return self.checked(frozenset(items) if isinstance(self.default, frozenset) else tuple(items), name)

    def parse_scaled(self, text: str, name: str, *, unit_ms: int, negative_means: int | None) -> int:
        """The value of a text in another unit, in range. Raises ConfigError, in that unit."""
        if _WHOLE_NUMBER.fullmatch(text.strip()) is None:
            raise wrong_value(name, text, "a whole number expected")
        number = int(text)
        if negative_means is not None and number < 0:
            return negative_means
        least = -(-self.minimum // unit_ms)
        if not least <= number <= min(INT32_MAX if unit_ms > 1 else INT64_MAX, self.maximum // unit_ms):
            raise wrong_value(name, number, f"at least {least} expected, and at most 2^31-1")
        return number * unit_ms

    def checked(self, value: Value, name: str | None = None, *, minimum: int | None = None) -> Value:
        """The value itself.

        Raises:
            ConfigError: of another type, or out of range.
        """
        name = name or self.name
        kind = type(self.default)
        if type(value) is int and kind is float:
            value = float(value)
        if type(value) is not kind or not all(type(item) is str for item in _items(value)):
            raise wrong_value(name, value, f"{_WANTED[kind]} expected")
        if kind is int or kind is float:
            self._check_number(value, name, self.minimum if minimum is None else minimum)  # type: ignore[arg-type]
        elif isinstance(value, str):
            self._check_choices(name, (value,))
        elif isinstance(value, frozenset):
            self._check_choices(name, value)
        elif isinstance(value, tuple) and value != ("*",):
            for item in value:
                if _REPLICAS.fullmatch(item) is None:
                    raise wrong_value(name, item, "* or <partition>:<broker> expected")
        return value

    def checked_in_code(self, value: Value) -> Value:
        """The value itself, if code may set it so. Raises ConfigError."""
        return self.checked(value, minimum=self.minimum_in_code)

    def shown(self, value: Value) -> str:
        """A value as Kafka writes it."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, frozenset | tuple):
            return ",".join(sorted(value) if isinstance(value, frozenset) else value)
        return str(value)

    def _check_number(self, value: float, name: str, minimum: int) -> None:
        if value == self.also:
            return
        if not minimum <= value or math.isnan(value):
            also = "" if self.also is None else f", or {self.also}"
            raise wrong_value(name, value, f"at least {minimum} expected{also}")
        if value > self.maximum:
            raise wrong_value(name, value, f"at most {self.maximum} expected")

    def _check_choices(self, name: str, values: Iterable[str]) -> None:
        for value in values:
            if self.choices and value not in self.choices:
                raise wrong_value(name, value, f"one of {', '.join(self.choices)} expected")


def _items(value: Value) -> Iterable[object]:
    return value if isinstance(value, frozenset | tuple) else ()


def wrong_value(name: str, value: object, wanted: str) -> ConfigError:
    """The error for a value, to be raised."""
    return ConfigError(f"{name} {value!r:.80}: {wanted}")


def unknown_key(name: str, known: Iterable[str]) -> ConfigError:
    """The error for a key, to be raised: it names the nearest known one."""
    nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]
    return ConfigError(f"unknown key {name!r:.80}: the nearest known one is {nearest}")
