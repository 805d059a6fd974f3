"""Java's classes of characters (``\\d``, ``\\p{Alpha}`` …) as sets of ASCII characters: topic names have no others."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Collection, Iterable
from typing import Final

#: All of ASCII.
ALL: Final = frozenset(range(128))


def _of(characters: Iterable[str]) -> frozenset[int]:
    return frozenset(map(ord, characters))


_DIGIT: Final = _of(string.digits)
_LOWER: Final = _of(string.ascii_lowercase)
_UPPER: Final = _of(string.ascii_uppercase)
_ALPHA: Final = _LOWER | _UPPER
_ALNUM: Final = _ALPHA | _DIGIT
_PUNCTUATION: Final = _of(string.punctuation)
_SPACE: Final = _of(" \t\n\v\f\r")
_BLANK: Final = _of(" \t")
_CONTROL: Final = frozenset((*range(32), 127))
_HEX: Final = _of(string.hexdigits)
_WORD: Final = _ALNUM | _of("_")
_LINE_ENDS: Final = _of("\n\v\f\r")

_ESCAPED: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE, "h": _BLANK, "v": _LINE_ENDS}
#: ``\d`` and its like, by their letter.
CLASS_ESCAPES: Final = _ESCAPED | {letter.upper(): ALL - found for letter, found in _ESCAPED.items()}

_CATEGORIES: Final = {code: unicodedata.category(chr(code)) for code in ALL}
_POSIX: Final = {
    "ASCII": ALL,
    "Alnum": _ALNUM,
    "Alpha": _ALPHA,
    "Blank": _BLANK,
    "Cntrl": _CONTROL,
    "Digit": _DIGIT,
    "Graph": _ALNUM | _PUNCTUATION,
    "Lower": _LOWER,
    "Print": _ALNUM | _PUNCTUATION | _of(" "),
    "Punct": _PUNCTUATION,
    "Space": _SPACE,
    "Upper": _UPPER,
    "XDigit": _HEX,
    "L1": ALL,
    "all": ALL,
    "javaLowerCase": _LOWER,
    "javaUpperCase": _UPPER,
    "javaAlphabetic": _ALPHA,
    "javaLetter": _ALPHA,
    "javaDigit": _DIGIT,
    "javaLetterOrDigit": _ALNUM,
    "javaISOControl": _CONTROL,
    "javaSpaceChar": _of(" "),
    "javaWhitespace": _SPACE | frozenset(range(28, 32)),
}
#: Behind ``Is``, by their names in capitals.
_BINARY: Final = {
    "ALPHABETIC": _ALPHA,
    "LETTER": _ALPHA,
    "LOWERCASE": _LOWER,
    "UPPERCASE": _UPPER,
    "WHITE_SPACE": _SPACE,
    "WHITESPACE": _SPACE,
    "CONTROL": _CONTROL,
    "DIGIT": _DIGIT,
    "HEX_DIGIT": _HEX,
    "HEXDIGIT": _HEX,
    "LATIN": _ALPHA,
    "LATN": _ALPHA,
}
_BLOCKS: Final = ("BASICLATIN", "BASIC LATIN", "BASIC_LATIN")
_SECOND: Final = {"L": "ultmo", "M": "nec", "N": "dlo", "Z": "slp", "C": "cfosn", "P": "dsecoif", "S": "mcko"}
_PAIRS: Final = frozenset(kind + second for kind, seconds in _SECOND.items() for second in seconds)
_OF_ONE_CASE: Final = frozenset(
    ("lower", "upper", "lu", "ll", "lt", "javalowercase", "javauppercase", "islowercase", "isuppercase")
) | {"islu", "isll", "islt"}


def property_set(name: str, *, ignore_case: bool) -> frozenset[int] | None:
    """The characters of ``\\p{name}``; None if the name is unknown here, or Java versions differ if case is ignored."""
    if ignore_case and name.rpartition("=")[2].lower() in _OF_ONE_CASE:
        return None
    key, equals, value = name.partition("=")
    if equals and key.lower() in ("gc", "general_category"):
        return _category(value)
    if equals and key.lower() in ("sc", "script"):
        return _ALPHA if value.upper() in ("LATIN", "LATN") else None
    if name.startswith("In"):
        return ALL if name[2:].upper() in _BLOCKS else None
    if name.startswith("Is"):
        return _BINARY.get(name[2:].upper()) or _category(name[2:])
    return _POSIX.get(name) or _category(name)


def both_cases(codes: Collection[int]) -> frozenset[int]:
    """Return the characters, and each of their letters in the other case."""
    return frozenset(ord(each) for code in codes for each in (chr(code).lower(), chr(code).upper()) if each.isascii())


def class_text(codes: Collection[int]) -> str:
    """Return the class as Python writes it."""
    known = sorted(code for code in codes if code in ALL)
    if not known:
        return "(?!)"
    if len(known) == len(ALL):
        return "(?s:.)"
    parts, start = [], known[0]
    for code, following in zip(known, [*known[1:], -1], strict=True):
        if following != code + 1:
            parts.append(f"\\x{start:02x}" + (f"-\\x{code:02x}" if code > start else ""))
            start = following
    return f"[{''.join(parts)}]"


def _category(name: str) -> frozenset[int] | None:
    if name in ("LC", "LD"):
        return _ALPHA if name == "LC" else _ALNUM
    if name not in _SECOND and name not in _PAIRS:
        return None
    return frozenset(code for code, category in _CATEGORIES.items() if category.startswith(name))
