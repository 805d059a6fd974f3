"""What happened in a run: the last thousand events in words, a hash over all of them, counters, and marks of the code.

An event's words are made of plain values alone: a set, or an object without words of its own, would give another hash
in another process.
"""

from __future__ import annotations

import ast
import hashlib
import pathlib
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Final

import tierlog
from tierlog.marks import count_marks

LAST_EVENTS: Final = 1000
ENGINE: Final = pathlib.Path(tierlog.__file__).parent


class Trace:
    """The trace of one run, in its process.

    Attributes:
        now_ms: The true time; the world sets it.
        events: How many there were.
        counters: Of whatever a part wants counted.
        marks: How often the engine came by each of its marks.
    """

    def __init__(self, last: int = LAST_EVENTS) -> None:
        self.now_ms: Callable[[], int] = int
        self.events = 0
        self.counters: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self._last: deque[str] = deque(maxlen=last)
        self._hash = hashlib.blake2b(digest_size=8)

    def event(self, kind: str, *words: object) -> None:
        """An event: a message delivered, a client's answer, a run of a task, a fault.

        Args:
            kind: One of few; each is counted.
            words: Strings, numbers, tuples of them.
        """
        self.events += 1
        self.counters[kind] += 1
        self._write(f"{self.now_ms()} {kind} {' '.join(map(str, words))}")

    def note(self, *words: object) -> None:
        """Words that are no event: a decision, or an answer's meaning."""
        self._write(f"{self.now_ms()}   {' '.join(map(str, words))}")

    def _write(self, text: str) -> None:
        self._hash.update(text.encode())
        self._last.append(text)

    def count(self, name: str, times: int = 1) -> None:
        """Count something that the campaign's report has."""
        self.counters[name] += times

    def count_marks(self) -> None:
        """Count the engine's marks from now on, until the process ends."""
        count_marks(self._mark)

    def _mark(self, name: str) -> None:
        self.marks[name] += 1
        self._write(f"{self.now_ms()}   mark {name}")

    @property
    def hash(self) -> str:
        """Of all events and notes so far."""
        return self._hash.hexdigest()

    def last_events(self) -> list[str]:
        """The last events and notes, in order."""
        return list(self._last)


def engine_marks(root: pathlib.Path = ENGINE) -> Mapping[str, str]:
    """The marks of the engine's code: name to module and row.

    Raises:
        ValueError: A name stands twice, or is no constant, as it has to be.
    """
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*.py")):
        text = path.read_text()
        if "mark(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "mark":
                continue
            place = f"{path.relative_to(root)}:{node.lineno}"
            name = ast.literal_eval(node.args[0])
            if name in found:
                raise ValueError(f"{place}: {name} stands at {found[name]} already")
            found[name] = place
    return found
