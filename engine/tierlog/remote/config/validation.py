"""The rows of a configuration as pydantic's validators, and errors in Kafka's words that show no secret."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import SecretStr, ValidationError
from pydantic_core.core_schema import ValidationInfo

from tierlog.config_keys import WrongValueError, rows
from tierlog.errors import ConfigError

Password = SecretStr
Table = TypeVar("Table")


def read_value(table: type[Any], value: object, info: ValidationInfo) -> object:
    """Return the value of a field, which its row reads and checks: a validator of all fields, before pydantic's own."""
    row = rows(table).get(str(info.field_name))
    if row is None or value is None or isinstance(value, SecretStr):
        return value
    return row.read(value) if isinstance(value, str) else row.check(value)  # type: ignore[arg-type]


def validated(table: type[Table], values: Mapping[str, object]) -> Table:
    """Make a configuration of the values of its fields.

    Raises:
        ConfigError: the first fault, in the words of Kafka's validators.
    """
    try:
        return table(**values)
    except ValidationError as cause:
        # Without its cause, which would quote every value.
        first: Any = cause.errors(include_url=False)[0]
    error = first["ctx"]["error"]
    if not isinstance(error, WrongValueError):
        raise error
    row = rows(table)[first["loc"][0]]
    shown = "" if row.is_secret else quoted(str(values[first["loc"][0]]), error.kafkas)
    raise ConfigError(f"Invalid value{shown} for configuration {row.name}: {error.kafkas}")


#: A number, with a unit perhaps.
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9_.,]{0,19}\s?[A-Za-z%]{0,3}")
#: The path of a class: dots and letters, as no password has them.
_CLASS_PATH: Final = re.compile(r"(?:[A-Za-z_]+\.)+[A-Za-z_]{1,60}")
_WORD: Final = re.compile(r"[a-z]{2,}")
#: What people write for a boolean.
_USUAL: Final = ("true", "false", "yes", "no", "on", "off", "enabled", "disabled", "none")


def quoted(value: str, wanted: str) -> str:
    """Return the value, with a space in front, if it may be shown: a number, a class, or text close to the wanted one.
    Else "".

    Args:
        value: The value that a key was given.
        wanted: The values that the key accepts, in the words of the message.
    """
    text = value.strip()
    if _NUMBER.fullmatch(text) or (len(text) <= 200 and _CLASS_PATH.fullmatch(text)):
        return f" {text}"
    known = {*_USUAL, *_WORD.findall(wanted.lower())}
    return f" {text}" if difflib.get_close_matches(text.lower(), known, n=1, cutoff=0.7) else ""
