"""The ledger of a job: which segments are done, with their outcomes, so that a run that was interrupted goes on.

A file of lines of JSON to which lines are only added. The first one says what was asked for; each other one a segment,
its size and time of change, and its outcome. A line is on the disk before its outcome is told. The last line is torn
where a run was killed while it wrote: then it is cut off.

An outcome that a later run may find different (a store that did not answer, a segment that failed) is not in it. A
segment whose log has changed since is done again.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final, TypeVar

from tierlog.arguments import require_path
from tierlog.errors import ConfigError, CorruptDataError, ObjectConflictError
from tierlog.opening import Path
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import UpdatableFile
from tierlog.upkeep.segment_work import Executor, KeptOutcome, LedgerKey, SegmentWork

_VERSION: Final = 1
#: Of one line; outcomes that are longer are not kept, and a file with a longer one is no ledger.
_LINE_BYTES_MAX: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 20

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class JobLedger:
    """The ledger of one kind of job over one place. Made by ``open_ledger``.

    Thread safety: one thread.
    """

    def __init__(self, file: UpdatableFile, where: str, asked: Mapping[str, str]) -> None:
        self._file = file
        self._where = where
        self._outcomes: dict[LedgerKey, bytes] = {}
        self._read({"tierlog": "ledger", "version": _VERSION, "asked": dict(asked)})

    def __len__(self) -> int:
        return len(self._outcomes)

    def find(self, key: LedgerKey) -> KeptOutcome | None:
        """Return the outcome of a segment that is done; None if it is not. Raises CorruptDataError."""
        line = self._outcomes.get(key)
        return None if line is None else KeptOutcome(json.loads(line)["outcome"], self._where)

    def add(self, key: LedgerKey, outcome: Mapping[str, object]) -> None:
        """Add a segment that is done; it is on the disk on return. Raises StoreError."""
        fields = {"segment": key.name, "sizeBytes": key.size_bytes, "modifiedMs": key.modified_ms, "outcome": outcome}
        line = _line(fields)
        if len(line) <= _LINE_BYTES_MAX:
            self._file.append(line)
            self._file.fsync()

    def _read(self, head: Mapping[str, object]) -> None:
        whole = 0
        for number, line in enumerate(self._lines()):
            whole += len(line)
            fields = self._parsed(line, number)
            if number == 0:
                self._check_head(fields, head)
            else:
                self._outcomes[self._key(fields, number)] = line
        if whole < self._file.size_bytes:
            if not whole and not _line(head).startswith(self._start()):
                raise ConfigError(f"{self._where} is no ledger: name a new file")
            self._file.truncate(whole)
        if not whole:
            self._file.append(_line(head))
            self._file.fsync()

    def _start(self) -> bytes:
        start = bytearray(min(self._file.size_bytes, _LINE_BYTES_MAX))
        self._file.read_into(start, position=0)
        return bytes(start)

    def _lines(self) -> Iterator[bytes]:
        """Yield the whole lines."""
        rest = b""
        for position in range(0, self._file.size_bytes, _PIECE_BYTES):
            piece = bytearray(min(_PIECE_BYTES, self._file.size_bytes - position))
            self._file.read_into(piece, position=position)
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line + b"\n" for line in lines)
            if len(rest) > _LINE_BYTES_MAX:
                raise ConfigError(f"{self._where} is no ledger: a line has more than {_LINE_BYTES_MAX} bytes")

    def _parsed(self, line: bytes, number: int) -> dict[str, object]:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict):
            return fields
        if number == 0:
            raise ConfigError(f"{self._where} is no ledger: name a new file")
        raise CorruptDataError(f"line {number + 1} is no entry of a ledger", fault="LEDGER", where=self._where)

    def _check_head(self, found: Mapping[str, object], head: Mapping[str, object]) -> None:
        if found.get("tierlog") != "ledger":
            raise ConfigError(f"{self._where} is no ledger: name a new file")
        if found.get("version") != _VERSION:
            raise ConfigError(f"{self._where} is a ledger of another version of Tierlog: name a new file")
        if found.get("asked") != head["asked"]:
            text = f"{_told(found.get('asked'))}; asked for is {_told(head['asked'])}"
            raise ConfigError(f"{self._where} is the ledger of another job: {text}")

    def _key(self, fields: Mapping[str, object], number: int) -> LedgerKey:
        kept = KeptOutcome(fields, f"{self._where}, line {number + 1}")
        kept.part(fields.get("outcome"))
        return LedgerKey(kept.text("segment"), kept.number("sizeBytes"), kept.number("modifiedMs"))


def _line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields).encode("ascii") + b"\n"


def _told(asked: object) -> str:
    if not isinstance(asked, dict):
        return "nothing that is known"
    return ", ".join(f"{name} {value}" for name, value in asked.items())[:1000]


@contextmanager
def open_ledger(path: str, asked: Mapping[str, str], machine: Machine) -> Generator[JobLedger]:
    """Open a ledger, which is made if it does not exist, and close it at the end of the block.

    Args:
        path: A file, or a folder, in which the file is then named after the job.
        asked: What the job does, and to what: texts without secrets. ``job`` is its name.
        machine: Its files.

    Raises:
        ConfigError: the file is no ledger, or that of another job. CorruptDataError: a line is damaged.
        ObjectConflictError: a job that runs has it. StoreError and its kinds: it cannot be read or written.
    """
    found = machine.files.find(path)
    where = f"{path.rstrip('/')}/tierlog-{asked['job']}.jsonl" if found is not None and found.is_directory else path
    lock = machine.files.try_lock(f"{where}.lock")
    if lock is None:
        raise ObjectConflictError(f"{where}: another job writes this ledger")
    with lock, machine.files.open_update(where, private=True) as file:
        yield JobLedger(file, where, asked)


class LedgerExecutor:
    """Has done by another executor what a ledger does not have, and notes it there.

    Args:
        executor: Does the others.
        ledger: Open until the run ends.
    """

    def __init__(self, executor: Executor, ledger: JobLedger) -> None:
        self._executor = executor
        self._ledger = ledger

    def run(self, work: SegmentWork[Item, Outcome], items: Iterable[Item]) -> Generator[tuple[Item, Outcome]]:
        """Yield each item with its outcome, as Executor says.

        Raises:
            Also CorruptDataError: an entry is no outcome of this job. StoreError: the ledger cannot be written.
        """
        known: collections.deque[tuple[Item, Outcome]] = collections.deque()

        def left() -> Iterator[Item]:
            for item in items:
                kept = self._ledger.find(work.key(item))
                if kept is None:
                    yield item
                    continue
                known.append((item, work.recalled(item, kept)))
                work.passed(item)

        with closing(self._executor.run(work, left())) as done:
            for item, outcome in done:
                while known:
                    yield known.popleft()
                kept_of_it = work.kept(outcome)
                if kept_of_it is not None:
                    self._ledger.add(work.key(item), kept_of_it)
                yield item, outcome
        while known:
            yield known.popleft()


@contextmanager
def ledgered(
    executor: Executor, ledger: Path | None, asked: Mapping[str, str], machine: Machine
) -> Generator[Executor]:
    """Open a job's ledger and put it in front of an executor until the block ends; without one, the executor itself.

    Raises: as ``open_ledger``.
    """
    if ledger is None:
        yield executor
        return
    with open_ledger(require_path("ledger", ledger), asked, machine) as opened:
        yield LedgerExecutor(executor, opened)
