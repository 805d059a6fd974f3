"""Translation of ``subscribePattern``, a Java regular expression that is searched in a topic's name, into Python's.

Spark's Kafka source asks ``java.util.regex`` whether the pattern is *found* in the name (``SubscribePatternStrategy``),
and its admin client lists no internal topics. Both languages look alike and differ in silence (``\\v``, ``\\Z``, ``&&``
in a class, ``{,3}``), so nothing is handed through: each construct is translated, or refused by name.

A name has letters, digits, ``.``, ``_`` and ``-`` of ASCII alone. So a class of characters is a set of ASCII
characters, worked out here: whatever Java's class says of others makes no difference.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from pyspark_tierlog.options.java_character_classes import ALL, CLASS_ESCAPES, both_cases, class_text, property_set

_INTERNAL: Final = r"(?!__(?:consumer_offsets|transaction_state|share_group_state)\Z)"
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ANCHORS: Final = {"A": r"\A", "G": r"\A", "Z": r"\Z", "z": r"\Z", "b": r"\b", "B": r"\B"}
_LOOKS: Final = ("?:", "?=", "?!", "?>", "?<=", "?<!")
_FLAGS: Final = "idmsuU"
_HEX: Final = frozenset("0123456789abcdefABCDEF")

Token = tuple[str, bool]
"""A character, and whether it stands for itself whatever it is: it was between ``\\Q`` and ``\\E``."""


def name_pattern(java: str) -> str:
    """Return the Python expression that matches a whole topic name if Spark's Kafka source would read the topic.

    Raises:
        ValueError: Java refuses the pattern, or it cannot be translated; the message names construct and position.
    """
    body = _Translation(java).whole()
    wanted = f"{_INTERNAL}(?s:.*?)(?:{body})(?s:.*)"
    try:
        re.compile(wanted)
    except (re.error, OverflowError, RecursionError) as error:
        text = re.sub(r" at position \d+.*", "", str(error))
        raise ValueError(f"{java!r}: {text}, which Python's expressions, in place of Java's, do not allow") from error
    return wanted


def _unquoted(text: str) -> list[Token]:
    r"""Return the characters, with ``\Q…\E`` resolved as Java does before anything else; escapes stay two
    characters.
    """
    found: list[Token] = []
    at, quoted = 0, False
    while at < len(text):
        pair = text[at : at + 2]
        if quoted and pair == r"\E":
            quoted, at = False, at + 2
        elif not quoted and pair == r"\Q":
            quoted, at = True, at + 2
        elif not quoted and pair[0] == "\\":
            found += [(character, False) for character in pair]
            at += len(pair)
        else:
            found.append((text[at], quoted))
            at += 1
    return found


class _Translation:
    """One pass over a pattern, by Java's grammar."""

    def __init__(self, java: str) -> None:
        self._java = java
        self._tokens = _unquoted(java)
        self._at = 0
        self._ignore_case = False
        self._closed: set[int] = set()
        self._groups = 0
        self._names: set[str] = set()

    def whole(self) -> str:
        text = self._alternatives()
        if self._at < len(self._tokens):
            self._refuse("a ) that closes nothing")
        return text

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(f"{self._java!r}: {what}, before {self._rest()!r}")

    def _rest(self) -> str:
        return "".join(character for character, _ in self._tokens[self._at :][:12])

    def _peek(self, ahead: int = 0) -> str:
        """Return the next character if it has a meaning; "" at the end and for a quoted one."""
        place = self._at + ahead
        if place >= len(self._tokens) or self._tokens[place][1]:
            return ""
        return self._tokens[place][0]

    def _ended(self) -> bool:
        return self._at >= len(self._tokens)

    def _next(self) -> str:
        if self._ended():
            self._refuse("the pattern ends too early")
        self._at += 1
        return self._tokens[self._at - 1][0]

    def _syntax(self) -> str:
        """Return the next character of a construct; a quoted character is none."""
        if not self._ended() and self._tokens[self._at][1]:
            self._refuse(r"\Q within a construct")
        return self._next()

    def _taken(self, text: str) -> bool:
        """Whether this text comes next; if so, it is passed."""
        if all(self._peek(ahead) == character for ahead, character in enumerate(text)):
            self._at += len(text)
            return True
        return False

    def _alternatives(self) -> str:
        parts = []
        while not self._ended() and self._peek() != ")":
            if self._taken("|"):
                parts.append("|")
            else:
                atom = self._atom()
                parts.append(atom + (self._quantifier() if atom else ""))
        return "".join(parts)

    def _atom(self) -> str:
        meaning = self._peek()
        if meaning in ("*", "+", "?", "{"):
            self._refuse(f"{meaning} repeats nothing")
        if meaning == "[":
            self._at += 1
            return class_text(self._character_class())
        if meaning == "(":
            self._at += 1
            return self._group()
        if meaning == "\\":
            self._at += 1
            return self._escape()
        character = self._next()
        return character if meaning in (".", "^", "$") else self._literal(character)

    def _literal(self, character: str) -> str:
        if self._ignore_case and character.isascii() and character.isalpha():
            return class_text(both_cases({ord(character)}))
        if self._ignore_case and not character.isascii():
            self._refuse(f"{character!r} with (?i), which is in no topic's name")
        return re.escape(character)

    def _quantifier(self) -> str:
        if self._peek() in ("*", "+", "?"):
            found = self._next()
        elif self._peek() == "{":
            found = self._counts()
        else:
            return ""
        if self._peek() in ("?", "+"):
            found += self._next()
        if self._peek() in ("*", "+", "?", "{"):
            self._refuse("a repetition of a repetition")
        return found

    def _counts(self) -> str:
        start = self._at
        text = ""
        while not text.endswith("}"):
            if self._ended() or len(text) > 24:
                break
            text += self._syntax()
        if re.fullmatch(r"\{[0-9]+(,[0-9]*)?\}", text) is None:
            self._at = start
            self._refuse("{ begins no {n}, {n,} or {n,m}")
        return text

    def _group(self) -> str:
        """Translate what follows an opening parenthesis, up to the closing one."""
        before = self._ignore_case
        if self._peek() != "?":
            self._groups += 1
            number, opened = self._groups, "("
        elif (look := next((each for each in _LOOKS if self._taken(each)), None)) is not None:
            number, opened = 0, f"({look}"
        elif self._taken("?<"):
            self._groups += 1
            number, opened = self._groups, f"(?P<{self._group_name()}>"
        else:
            self._at += 1
            if self._flags():  # (?i): for the rest of the group around it
                return ""
            number, opened = 0, "(?:"
        body = self._alternatives()
        if not self._taken(")"):
            self._refuse("a ( that is not closed")
        self._ignore_case = before
        self._closed.add(number)
        return f"{opened}{body})"

    def _group_name(self) -> str:
        name = ""
        while not name.endswith(">"):
            name += self._syntax()
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9]*>", name) is None or name[:-1] in self._names:
            self._refuse(f"{name[:-1]!r} is no name for a group, or is one twice")
        self._names.add(name[:-1])
        return name[:-1]

    def _flags(self) -> bool:
        """Read the flags behind ``(?``; returns whether they stand alone, without a group of their own."""
        on = True
        while (flag := self._syntax()) not in (")", ":"):
            if flag == "-" and on:
                on = False
            elif flag == "x":
                self._refuse("the flag x (blanks and comments are left out), which is not supported")
            elif flag not in _FLAGS:
                self._refuse(f"(?{flag} begins no group of Java's; a group has its name as (?<name>…)")
            elif flag == "i":
                self._ignore_case = on
        return flag == ")"

    def _escape(self) -> str:
        """Translate what follows a backslash outside of a class."""
        kind = self._peek()
        if kind in _ANCHORS:
            self._at += 1
            if kind in "bB" and self._peek() == "{":
                self._refuse(r"\b{g}, which is not supported")
            return _ANCHORS[kind]
        if kind == "k":
            self._at += 1
            return self._named_reference()
        if kind and kind in "123456789":
            return self._reference()
        if kind == "R":
            self._at += 1
            return class_text(CLASS_ESCAPES["v"])
        found = self._set_escape()
        return self._literal(self._character_escape()) if found is None else class_text(found)

    def _named_reference(self) -> str:
        if not self._taken("<"):
            self._refuse(r"\k without <name>")
        name = ""
        while not name.endswith(">"):
            name += self._syntax()
        if name[:-1] not in self._names:
            self._refuse(f"a reference to a group {name[:-1]!r} that is not before it")
        return f"(?i:(?P={name[:-1]}))" if self._ignore_case else f"(?P={name[:-1]})"

    def _reference(self) -> str:
        number = int(self._syntax())
        while self._peek().isdigit() and 10 * number + int(self._peek()) <= self._groups:
            number = 10 * number + int(self._syntax())
        if number not in self._closed:
            self._refuse(f"a reference to group {number}, which does not end before it")
        return rf"(?i:\{number})" if self._ignore_case else rf"(?:\{number})"

    def _set_escape(self) -> frozenset[int] | None:
        """The characters of ``\\d``, ``\\p{…}`` and the like; None for an escape of another kind."""
        kind = self._peek()
        if kind in CLASS_ESCAPES:
            self._at += 1
            return CLASS_ESCAPES[kind]
        if kind not in ("p", "P"):
            return None
        self._at += 1
        name = self._syntax()
        if name == "{":
            name = ""
            while not name.endswith("}"):
                name += self._syntax()
            name = name[:-1]
        found = property_set(name, ignore_case=self._ignore_case)
        if found is None:
            insensitive = " with (?i)" if self._ignore_case else ""
            self._refuse(rf"\{kind}{{{name}}}{insensitive}, which is not supported")
        return found if kind == "p" else ALL - found

    def _character_escape(self) -> str:
        """Return the one character that an escape stands for."""
        kind = self._syntax()
        if kind in _CONTROLS:
            return _CONTROLS[kind]
        if kind == "c":
            return chr(ord(self._syntax()) ^ 64)
        if kind == "0":
            return self._octal()
        if kind == "x":
            return self._hexadecimal(2, braces=True)
        if kind == "u":
            return self._hexadecimal(4, braces=False)
        if kind.isascii() and kind.isalnum():
            self._refuse(rf"\{kind}, which Java does not know or is not supported")
        return kind

    def _octal(self) -> str:
        digits = ""
        while len(digits) < 3 and self._peek() and self._peek() in "01234567" and int(digits + self._peek(), 8) < 256:
            digits += self._syntax()
        if not digits:
            self._refuse(r"\0 without a number")
        return chr(int(digits, 8))

    def _hexadecimal(self, size: int, *, braces: bool) -> str:
        digits = ""
        if braces and self._taken("{"):
            while self._peek() in _HEX and len(digits) < 8:
                digits += self._syntax()
            if not digits or not self._taken("}"):
                self._refuse(r"\x{ without a number")
        else:
            while self._peek() in _HEX and len(digits) < size:
                digits += self._syntax()
            if len(digits) < size:
                self._refuse(f"fewer than {size} hexadecimal digits")
        if int(digits, 16) > 0x10FFFF:
            self._refuse(f"{digits} is no character's number")
        return chr(int(digits, 16))

    def _character_class(self) -> frozenset[int]:
        """Translate what follows ``[``, with the closing bracket."""
        negated = self._taken("^")
        found = self._class_members()
        self._at += 1
        return ALL - found if negated else found

    def _class_members(self) -> frozenset[int]:
        """Return the members up to the closing bracket, which is not read. ``&&`` binds weaker than members that follow
        each other.
        """
        found: frozenset[int] | None = None
        while found is None or self._peek() != "]":
            if self._ended():
                self._refuse("a [ that is not closed")
            if self._taken("["):
                members = self._character_class()
            elif self._taken("&&"):
                if found is None or self._peek() in ("]", "&", "^"):
                    self._refuse("&& without a class on each side")
                found &= self._right_side()
                continue
            else:
                members = self._class_range()
            found = members if found is None else found | members
        return found

    def _right_side(self) -> frozenset[int]:
        """Return the right side of ``&&``: members, or classes in brackets. Java ignores the brackets if both are
        there; that is refused.
        """
        if self._peek() != "[":
            return self._class_members()
        found: frozenset[int] = frozenset()
        while self._taken("["):
            found |= self._character_class()
        if self._peek() != "]" and self._peek() + self._peek(1) != "&&":
            self._refuse("&& before both a class in brackets and other characters")
        return found

    def _class_range(self) -> frozenset[int]:
        first = self._class_character()
        if isinstance(first, frozenset):
            return first
        last = first
        if self._peek() == "-" and self._peek(1) not in ("]", "["):
            self._at += 1
            end = self._class_character()
            if isinstance(end, frozenset) or ord(end) < ord(first):
                self._refuse("a range of characters that does not rise")
            last = end
        found = frozenset(range(ord(first), min(ord(last), max(ALL)) + 1))
        return both_cases(found) if self._ignore_case else found

    def _class_character(self) -> str | frozenset[int]:
        if self._peek() != "\\":
            return self._next()
        self._at += 1
        found = self._set_escape()
        if found is not None and self._peek() == "-" and self._peek(1) not in ("]", "["):
            self._refuse("a range of characters that begins with a class")
        return self._character_escape() if found is None else found
