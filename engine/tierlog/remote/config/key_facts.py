"""Kafka's types of configuration values, and the facts of a key: its name, range and meaning.

Values come as text (Kafka's ConfigDef parses them so) or as JSON's and TOML's own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidationInfo

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_HTTP_URL: Final = re.compile(r"https?://[^\s/]+\S*", re.IGNORECASE)


def _fault(text: str) -> PydanticCustomError:
    return PydanticCustomError("kafka", "{text}", {"text": text})


def _boolean(value: object) -> object:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if isinstance(value, bool):
        return value
    raise _fault("Expected value to be either true or false")


def _whole_number(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value.strip()):
        return int(value)
    raise _fault("Not a number of type INT")


def _list(value: object) -> object:
    if isinstance(value, str):
        return tuple(item for item in (part.strip() for part in value.split(",")) if item)
    return value


KafkaBoolean = Annotated[bool, BeforeValidator(_boolean)]
KafkaInt = Annotated[int, BeforeValidator(_whole_number)]
KafkaList = Annotated[tuple[str, ...], BeforeValidator(_list)]
Password = SecretStr


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """The facts of a key beside its type.

    Args:
        own: The key is ours; the plugin does not have it.
        live: The key can be changed while the manager runs.
        minimum, maximum: Of a number, inclusive; ``multiple_of`` too. ``maximum`` None: that of Kafka's type.
        choices: The only values allowed (of a list: of each element).
        not_empty: Text of at least one character. ``url``: http or https.
    """

    own: bool = False
    live: bool = False
    minimum: int | None = None
    maximum: int | None = None
    multiple_of: int | None = None
    choices: tuple[str, ...] = ()
    not_empty: bool = False
    url: bool = False

    def check(self, value: object) -> None:
        """Raises PydanticCustomError in the words of Kafka's validators."""
        if isinstance(value, int) and not isinstance(value, bool):
            self._check_number(value)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        if isinstance(value, str):
            self._check_text(value)
        if isinstance(value, tuple):
            for item in value:
                self._check_text(item)

    def _check_number(self, value: int) -> None:
        maximum = INT64_MAX if self.maximum is None else self.maximum
        if self.minimum is not None and value < self.minimum:
            raise _fault(f"Value must be at least {self.minimum}")
        if value > maximum:
            raise _fault(f"Value must be no more than {maximum}")
        if self.multiple_of is not None and value % self.multiple_of:
            raise _fault(f"Value must be a multiple of {self.multiple_of}")

    def _check_text(self, value: str) -> None:
        if self.choices and value not in self.choices:
            raise _fault(f"String must be one of: {', '.join(self.choices)}")
        if self.not_empty and not value:
            raise _fault("String must be non-empty")
        if self.url and _HTTP_URL.fullmatch(value) is None:
            raise _fault("Must be a valid URL of http or https")


def key(
    name: str,
    meaning: str,
    *,
    default: object = None,
    own: bool = False,
    live: bool = False,
    minimum: int | None = None,
    maximum: int | None = None,
    multiple_of: int | None = None,
    choices: Iterable[str] = (),
    not_empty: bool = False,
    url: bool = False,
) -> Any:
    """A field of one key: see KeyFacts; ``meaning`` goes to the generated page."""
    facts = KeyFacts(own, live, minimum, maximum, multiple_of, tuple(choices), not_empty, url)
    field: Any = Field
    return field(default=default, alias=name, description=meaning, json_schema_extra={"facts": facts})


class KeyGroup(BaseModel):
    """A group of keys. Field names are the keys with "_" for each "."; immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def facts(cls, field: str) -> KeyFacts:
        """The facts of a key, by the Python name of its field."""
        extra: Any = cls.model_fields[field].json_schema_extra or {}
        found = extra.get("facts")
        return found if isinstance(found, KeyFacts) else KeyFacts()

    @field_validator("*", mode="after")
    @classmethod
    def _check(cls, value: object, info: ValidationInfo) -> object:
        if value is not None:
            cls.facts(str(info.field_name)).check(value)
        return value


#: A number, with a unit perhaps.
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9_.,]{0,19}\s?[A-Za-z%]{0,3}")
#: The path of a class: dots and letters, as no password has them.
_CLASS_PATH: Final = re.compile(r"(?:[A-Za-z_]+\.)+[A-Za-z_]{1,60}")
_WORD: Final = re.compile(r"[a-z]{2,}")
#: What people write for a boolean.
_USUAL: Final = ("true", "false", "yes", "no", "on", "off", "enabled", "disabled", "none")


def quoted(value: str, wanted: str) -> str:
    """The value, with a space in front, if it may be shown: a number, a class, or text close to what is wanted. Else
    "".

    Args:
        value: The value that a key was given.
        wanted: What the key accepts, in the words of the message.
    """
    text = value.strip()
    if _NUMBER.fullmatch(text) or (len(text) <= 200 and _CLASS_PATH.fullmatch(text)):
        return f" {text}"
    known = {*_USUAL, *_WORD.findall(wanted.lower())}
    return f" {text}" if difflib.get_close_matches(text.lower(), known, n=1, cutoff=0.7) else ""
