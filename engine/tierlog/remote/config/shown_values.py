"""Which wrong values a message may quote: a secret that was given to the wrong key must not come back in a log."""

from __future__ import annotations

import difflib
import re
from typing import Final

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
