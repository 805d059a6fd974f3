"""Values of a broker's keys, as its properties have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tierlog.errors import ConfigError

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def read_number(properties: Mapping[str, str], key: str, least: int, most: int = INT32_MAX) -> int:
    """The value of a key that is there: a number within limits, both inclusive.

    Raises:
        ConfigError: the value is no number, or out of range; names the key.
    """
    text = properties[key].strip()
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < 20
    if not is_number or not least <= int(text) <= most:
        raise ConfigError(f"{key}={text:.40}: a number from {least} to {most} is expected")
    return int(text)
